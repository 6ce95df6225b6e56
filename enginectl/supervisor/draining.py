"""A drain: new work is refused here first, what runs may finish, and the engine's own counters say when it is empty.

A task of its own: who watches it may leave. Ends with DrainEnd, by cancel (uncordon), or with the engine's death; one
that only fails at its deadline says so then, and goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.messages import FinishReason
from enginectl.control import DrainProgress
from enginectl.control_verbs import DrainArgs, DrainEnd
from enginectl.errors import CtlError, Deadline, WrongState
from enginectl.supervisor.ending import begin_stop, no_longer_expected
from enginectl.supervisor.gates import UNDO_LIMIT_S
from enginectl.supervisor.inflight import UNFINISHED, Flight
from enginectl.supervisor.late import late
from enginectl.supervisor.loop import Future
from enginectl.text import count

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

EVERY_S = 0.5
ASK_S = 5.0
ANSWER_S = 0.5
"""For an engine that begins at the last moment to say so: one that is stalled must not begin later, unwatched."""
CANCELLED = "cancelled by uncordon"
OVERDUE_S = 10.0
"""An engine that has not ended so long after its drain's deadline is stopped from here."""


class Drain:
    def __init__(self, daemon: Daemon, args: DrainArgs) -> None:
        self.args = args
        self.progress = DrainProgress(grace_s=args.grace_s)
        self.done: Future[DrainEnd] = Future()
        self.is_cancelled = False
        self.is_overdue = False
        """Past its deadline, and going on without it: another drain may take its place."""
        self.can_be_by_engine = True
        self.was_cordoned = daemon.is_cordoned
        """Before it, so that one that never begins leaves things as they were."""
        self.cut_off_before = daemon.inflight.cut_off
        self._daemon = daemon
        self._began = time.monotonic()
        self._listeners: list[Callable[[DrainProgress], None]] = []
        self._ended: list[FinishReason] = []
        for flight in daemon.inflight.flights.values():
            flight.gone.when_done(lambda flight=flight: self._ended.append(flight.gone.result()))  # type: ignore[misc]
        self.update()

    @property
    def is_by_engine(self) -> bool:
        """The engine keeps the deadline and ends itself; else the supervisor waits and decides."""
        return self.can_be_by_engine and self.args.stop and self.args.on_timeout == "abort"

    def listen(self, listener: Callable[[DrainProgress], None]) -> None:
        listener(self.progress)
        self._listeners.append(listener)

    def forget(self, listener: Callable[[DrainProgress], None]) -> None:
        """It may go on for hours, and people look in now and then."""
        self._listeners.remove(listener)

    def update(self) -> None:
        """Counts, what is left, and who will not make it."""
        now = time.monotonic()
        flights = list(self._daemon.inflight.flights.values())
        running, waiting = self._daemon.health.counts() if self._daemon.health else (0, 0)
        etas = {flight.id: eta for flight in flights if (eta := self._eta_s(flight)) is not None}
        rest_s = self.args.grace_s - (now - self._began)
        worst = max(etas, key=lambda name: etas[name], default="")
        self.progress = DrainProgress(
            began_s_ago=now - self._began, grace_s=self.args.grace_s, running=running, waiting=waiting,
            tokens_left=sum(self._tokens_left(flight) for flight in flights),
            tok_s=self._daemon.book.decode.rate(now), eta_s=etas.get(worst), worst_id=worst,
            worst_eta_s=etas.get(worst), will_miss=[name for name, eta in etas.items() if eta > rest_s][:100],
        )  # fmt: skip
        if self.progress.tok_s > 0 and self.progress.tokens_left:
            self.progress.eta_s = self.progress.tokens_left / self.progress.tok_s
        for listener in self._listeners:
            listener(self.progress)

    def _tokens_left(self, flight: Flight) -> int:
        ready = self._daemon.ready
        limit = flight.max_tokens
        if limit is None:
            limit = ready.max_model_len - flight.prompt_tokens if ready else 0
        return max(0, limit - flight.output_tokens)

    def _eta_s(self, flight: Flight) -> float | None:
        """At the pace it had so far; one that has not begun at the pace of the others, its wait not counted."""
        tpot_ms = flight.tpot_ms or self._daemon.book.tpot.percentile(time.monotonic(), 50)
        return None if tpot_ms is None else self._tokens_left(flight) * tpot_ms / 1000

    def result(self, *, drained: bool, detail: str = "") -> DrainEnd:
        return DrainEnd(
            drained=drained, cancelled=self.is_cancelled, took_s=time.monotonic() - self._began, detail=detail,
            finished=sum(reason not in UNFINISHED for reason in self._ended),
            aborted=self._daemon.inflight.cut_off - self.cut_off_before,
        )  # fmt: skip


def begin_drain(daemon: Daemon, args: DrainArgs) -> Drain:
    """Raises WrongState when one goes on with other terms."""
    before = daemon.drain
    if before is not None and not before.is_overdue:
        if before.args != args:
            raise WrongState("a drain goes on already", cause=f"grace {before.args.grace_s:g} s")
        return before
    if before is not None:
        before.is_cancelled = True
    drain = daemon.drain = Drain(daemon, args)
    daemon.is_cordoned = True
    drain.can_be_by_engine = daemon.kind.has_own_utilities
    daemon.events.add("drain", f"began with {count(len(daemon.inflight), 'request')}, grace {args.grace_s:g} s")
    daemon.loop.spawn(_run(daemon, drain))
    daemon.changed()
    return drain


async def _run(daemon: Daemon, drain: Drain) -> None:
    try:
        end = await (_by_engine(daemon, drain) if drain.is_by_engine else _by_supervisor(daemon, drain))
    except CtlError as error:
        drain.done.set_error(error)
    else:
        daemon.events.add("drain", f"ended: {end.detail or 'drained' if end.drained else end.detail}")
        drain.done.set_result(end)
    if daemon.drain is drain:
        daemon.drain = None
    daemon.changed()


async def _by_engine(daemon: Daemon, drain: Drain) -> DrainEnd:
    """The engine ends itself once it is empty or its deadline has passed."""
    daemon.expected, valid_until = "drain", time.monotonic() + ASK_S - ANSWER_S
    ended = daemon.engine_exit
    try:
        await daemon.calls.get("shutdown", object, drain.args.grace_s, valid_until, timeout_s=ASK_S)
    except CtlError as error:
        if not ended.done:  # else it died while it was drained, and is not started again
            no_longer_expected(daemon, "drain")
            daemon.is_cordoned = drain.was_cordoned
        if isinstance(error, Deadline):
            daemon.loop.spawn(_take_back(daemon))
            again = "" if daemon.is_cordoned else ", and new requests are taken again"
            raise late(daemon, f"no drain began in {ASK_S:.1f} s{again}") from None
        raise
    overdue_at = time.monotonic() + drain.args.grace_s + OVERDUE_S
    while not ended.done and not drain.is_cancelled:
        await daemon.loop.first(ended, timeout_s=EVERY_S)
        if not ended.done:
            drain.update()
        if time.monotonic() > overdue_at:
            begin_stop(daemon, 0.0, daemon.settings.term_s, by="overdue drain")
    if drain.is_cancelled:
        return drain.result(drained=False, detail=CANCELLED)
    if not ended.result().requested:
        raise daemon.died()
    await daemon.loop.first(daemon.gone, timeout_s=10.0)
    end = drain.result(drained=True)
    end.drained = not _has_missed(end, drain)
    end.detail = "" if end.drained else f"{end.aborted} aborted at the deadline"
    return end


async def _take_back(daemon: Daemon) -> None:
    """Of an engine that began in time and could not say so: else it would end once it goes on."""
    try:
        await daemon.calls.get("cancel_shutdown", object, timeout_s=UNDO_LIMIT_S)
    except CtlError as error:
        daemon.write_log(f"cancel_shutdown: {error.message}")


def _has_missed(end: DrainEnd, drain: Drain) -> bool:
    """The deadline ended requests. Those that a stop cut off before it are no failure of the drain."""
    return end.aborted > 0 and end.took_s >= drain.args.grace_s


async def _by_supervisor(daemon: Daemon, drain: Drain) -> DrainEnd:
    """Waits until the engine itself counts nothing; past the deadline aborts the rest, or fails and waits on. An engine
    that lets go of nothing even then is stopped, where it was to be; else the drain ends and says so."""
    deadline, has_aborted = time.monotonic() + drain.args.grace_s, False
    ended = daemon.engine_exit
    while not drain.is_cancelled:
        if ended.done:
            raise daemon.died()
        is_late = time.monotonic() >= deadline and not drain.is_overdue
        if await _is_empty(daemon) or (is_late and has_aborted):
            return await _conclude(daemon, drain)
        if is_late and drain.args.on_timeout == "fail":
            _fail(daemon, drain)
        elif is_late:
            await _abort_rest(daemon)
            deadline, has_aborted = time.monotonic() + OVERDUE_S, True
        await daemon.loop.first(ended, timeout_s=EVERY_S)
        drain.update()
    return drain.result(drained=False, detail="another drain took its place" if daemon.drain else CANCELLED)


async def _conclude(daemon: Daemon, drain: Drain) -> DrainEnd:
    end = drain.result(drained=True)
    end.drained = not _has_missed(end, drain)
    if drain.args.stop:
        await begin_stop(daemon, 0.0, daemon.settings.term_s, by="drain").done
    elif len(daemon.inflight):
        end.drained, end.detail = False, f"{count(len(daemon.inflight), 'request')} not let go of by the engine"
    return end


def _fail(daemon: Daemon, drain: Drain) -> None:
    """Whoever watches hears that it missed its deadline; what runs may finish all the same."""
    drain.is_overdue = True
    detail = f"{count(len(daemon.inflight), 'request')} left; it goes on draining"
    daemon.events.add("drain", f"missed its deadline: {detail}")
    drain.done.set_result(drain.result(drained=False, detail=detail))


async def _is_empty(daemon: Daemon) -> bool:
    if len(daemon.inflight) or daemon.health is None:
        return False
    counters = await daemon.health.ask()
    return counters is not None and not counters.running and not counters.waiting


async def _abort_rest(daemon: Daemon) -> None:
    ids = list(daemon.inflight.flights)
    await daemon.traffic.abort_by_operator(ids, by_drain=True)


async def cancel_drain(daemon: Daemon) -> None:
    """For uncordon. Raises CtlError when the engine cannot take it back."""
    drain = daemon.drain
    if drain is None:
        return
    try:
        is_back = not drain.is_by_engine or await daemon.calls.get("cancel_shutdown", bool, timeout_s=ASK_S)
    except Deadline:
        raise late(daemon, f"the drain was not cancelled in {ASK_S:.1f} s") from None
    if not is_back:
        raise WrongState("the drain cannot be cancelled any more", cause="the engine is ending")
    drain.is_cancelled = True
    no_longer_expected(daemon, "drain")
    daemon.drain = None
