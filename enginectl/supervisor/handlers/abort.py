"""`abort`: ends requests of anybody, and says what became of each once they are gone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from enginectl.control import AbortArgs, AbortOutcome, AbortResult
from enginectl.errors import CtlError, UsageError
from enginectl.supervisor.inflight import Flight

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


MAX_IDS = 10_000
ASK_S = 5.0


async def handle(daemon: Daemon, session: Session, args: AbortArgs) -> None:
    if not daemon.traffic.hold.is_holding:
        daemon.check_serving("abort")
    if len(args.ids) > MAX_IDS:
        raise UsageError(f"{len(args.ids)} ids in one abort; at most {MAX_IDS}")
    asked, outcomes = _resolve(daemon, args)
    ids = list(dict.fromkeys(flight.id for _, flight in asked))
    if ids:
        await daemon.traffic.abort_by_operator(ids)
    end = daemon.loop.sleep(args.timeout_s)
    for _, flight in asked:
        await daemon.loop.first(flight.gone, daemon.engine_exit, end)
    if daemon.engine_exit.done and not daemon.traffic.hold.is_holding:
        raise daemon.died()
    outcomes += [_outcome(name, flight) for name, flight in asked]
    session.reply(AbortResult(items=outcomes))


def _resolve(daemon: Daemon, args: AbortArgs) -> tuple[list[tuple[str, Flight]], list[AbortOutcome]]:
    """What each id means now, and the outcomes that are clear already."""
    asked: list[tuple[str, Flight]] = []
    outcomes: list[AbortOutcome] = []
    now = time.monotonic()
    if args.all or args.older_s is not None:
        limit = args.older_s or 0.0
        asked += [(flight.id, flight) for flight in daemon.inflight.flights.values() if now - flight.added_at >= limit]
    for name in args.ids:
        found = daemon.inflight.find(name)
        if found.flights:
            asked += [(name, flight) for flight in found.flights]
        elif found.ambiguous:
            outcomes.append(AbortOutcome(asked=name, result="ambiguous", detail=", ".join(found.ambiguous)))
        elif found.finished:
            outcomes.append(AbortOutcome(asked=name, id=name, result="already-finished", detail=found.finished))
        else:
            outcomes.append(AbortOutcome(asked=name, result="not-found"))
    return asked, outcomes


async def _ask(daemon: Daemon, ids: list[str]) -> None:
    """By utility, so that their clients hear an error; a busy engine takes it between two steps."""
    for name in ids:
        if name in daemon.inflight.flights:
            daemon.inflight.flights[name].aborted_by_operator = True
    try:
        await daemon.calls.get("abort_requests", object, ids, True, timeout_s=ASK_S)
    except CtlError as error:
        daemon.write_log(f"abort_requests: {error.message}")


def _outcome(asked: str, flight: Flight) -> AbortOutcome:
    if not flight.gone.done:
        detail = "the engine has not let go of it yet"
        return AbortOutcome(asked=asked, id=flight.id, result="timeout", detail=detail)
    if flight.was_aborted:
        return AbortOutcome(asked=asked, id=flight.id, result="aborted")
    return AbortOutcome(asked=asked, id=flight.id, result="already-finished", detail=str(flight.gone.result()))
