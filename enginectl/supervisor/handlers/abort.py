"""`abort`: ends requests of anybody, and says what became of each once they are gone."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from enginectl.control_verbs import AbortArgs, AbortOutcome, AbortResult
from enginectl.errors import UsageError
from enginectl.supervisor.inflight import Flight
from enginectl.supervisor.late import standing
from enginectl.supervisor.verb_events import shortened

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


MAX_IDS = 10_000


async def handle(daemon: Daemon, session: Session, args: AbortArgs) -> None:
    if not daemon.traffic.hold.is_holding:
        daemon.check_serving("abort")
    if len(args.ids) > MAX_IDS:
        raise UsageError(f"{len(args.ids)} ids in one abort; at most {MAX_IDS}")
    asked, outcomes = _resolve(daemon, args)
    session.subject = shortened(args.ids or [flight.id for _, flight in asked])
    ids = list(dict.fromkeys(flight.id for _, flight in asked))
    end = daemon.loop.sleep(args.timeout_s)
    if ids:
        asking = daemon.loop.spawn(daemon.traffic.abort_by_operator(ids))
        await daemon.loop.first(asking, end)  # a stalled engine does not answer
    for _, flight in asked:
        await daemon.loop.first(flight.gone, daemon.engine_exit, end)
    if daemon.engine_exit.done and not daemon.traffic.hold.is_holding:
        raise daemon.died()
    outcomes += [_outcome(daemon, name, flight) for name, flight in asked]
    session.outcome = _summary(outcomes)
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


def _summary(outcomes: list[AbortOutcome]) -> str:
    """`2 aborted, 1 not-found`"""
    counts = Counter(outcome.result for outcome in outcomes)
    return ", ".join(f"{count} {result}" for result, count in counts.items()) or "nothing in flight"


def _outcome(daemon: Daemon, asked: str, flight: Flight) -> AbortOutcome:
    if not flight.gone.done:
        state, why = standing(daemon)
        detail = f"engine {daemon.settings.name!r} is {state}" + (f": {why}" if why else "")
        return AbortOutcome(asked=asked, id=flight.id, result="timeout", detail=detail)
    if flight.was_aborted:
        return AbortOutcome(asked=asked, id=flight.id, result="aborted")
    return AbortOutcome(asked=asked, id=flight.id, result="already-finished", detail=str(flight.gone.result()))
