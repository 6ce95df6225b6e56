"""The one way to the engine for every request, whoever's it is: sent now, kept while the engine is replaced, refused.

Messages of all seats come in, each with its frames, which travel on as they are. Owns the ledger and the hold; what a
client must be told while no engine answers it is told here, once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.codec import Dialect, encode_outputs, encode_request, utility_failure
from engine.messages import (
    ABORTED_BY_OPERATOR,
    AbortIds,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    UtilityCall,
    UtilityOutput,
)
from enginectl.errors import CtlError, EngineDied
from enginectl.supervisor.hold import Hold
from enginectl.supervisor.inflight import Flight
from enginectl.supervisor.ledger import Asked, Ledger, NotResumable, rest_of
from enginectl.supervisor.succession import will_be_held
from enginectl.text import count

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.seats import Seat


ASK_S = 5.0
TELL_EVERY_S = 1.0
"""Between two events about refusals."""
TELL_S = 0.7
"""An engine in a long step lets go of a request only after it; its client hears of it so soon anyway."""
MAX_KEPT = 100_000
"""Messages kept while an engine is replaced; beyond them requests are refused."""


class Traffic:
    def __init__(self, daemon: Daemon) -> None:
        self.ledger = Ledger()
        self.hold = Hold(daemon.loop, self._expire)
        self.to_client: Callable[[int, list[bytes]], None] | None = None
        """Sends frames to an external client."""
        self._daemon = daemon
        self._calls: dict[tuple[int, int], None] = {}
        """Utility calls of external clients that have no answer yet: (client, call id)."""
        self._orphaned: set[tuple[int, int]] = set()
        """Of those, whose frontend is gone."""
        self._kept: dict[tuple[int, int], tuple[Seat, UtilityCall, list[bytes]]] = {}
        """Of those, which no engine has seen yet: they wait for the next one. Requests wait in the ledger."""

        self._owed: Counter[str] = Counter()
        """By id: last outputs still to come of requests whose id another has taken since. None before is that one's."""
        self._untold, self._told_at = 0, float("-inf")
        """Refusals that wait for the next event; when the last was written."""

    # ------------------------------------------------------------ from clients

    def add(self, seat: Seat, request: EngineCoreRequest, frames: list[bytes]) -> Flight:
        """Raises CtlError when it is refused; nothing was done then."""
        daemon = self._daemon
        known = daemon.inflight.flights.get(request.request_id)
        if known is not None and known.ended_by != "client":
            raise CtlError(f"{request.request_id[:80]} is in flight already, of client {known.client}")
        is_held = self.hold.is_holding
        if is_held:
            daemon.check_uncordoned()
            if len(self.ledger.items) >= MAX_KEPT:
                raise CtlError(f"{MAX_KEPT} requests wait for the engine already")
        else:
            self._check_admits(seat)
            self._send_add(seat, frames)
        if known is not None:  # its client has let go of it, and takes the id again
            daemon.inflight.end(known, FinishReason.ABORT)
            if not is_held:
                self._owed[known.id] += 1
        flight = daemon.inflight.add(request)
        self.ledger.add(request.request_id, seat.index, frames)
        daemon.book.on_add(time.monotonic())
        return flight

    def _check_admits(self, seat: Seat) -> None:
        """Raises CtlError. Whoever asks through an API server that we have not yet seen listening has seen it."""
        daemon = self._daemon
        if not seat.is_own and daemon.api is not None and daemon.phase == "starting" and daemon.relay.is_up:
            daemon.check_uncordoned()
        else:
            daemon.check_admits()

    def _send_add(self, seat: Seat, frames: list[bytes]) -> None:
        """Raises EngineDied; not where its end, soon to be seen, begins a hold: then this waits with the others."""
        try:
            self._daemon.relay.send(seat, frames)
        except EngineDied:
            if seat.is_own or not will_be_held(self._daemon):
                raise

    def abort(self, seat: Seat, ids: Sequence[str], frames: list[bytes]) -> None:
        """A client lets go of its requests. vLLM answers that with nothing; nor do we while no engine runs."""
        daemon = self._daemon
        is_sent = False
        if not self.hold.is_holding:
            try:
                daemon.relay.send(seat, frames)
                is_sent = True
            except CtlError:
                pass  # with its engine its requests have ended
        for name in ids:
            self.ledger.end(name)
            flight = daemon.inflight.flights.get(name)
            if flight is None:
                continue
            flight.claim("client")
            if not (is_sent and daemon.kind.answers_aborts):
                daemon.inflight.end(flight, FinishReason.ABORT)

    def call(self, seat: Seat, call: UtilityCall, frames: list[bytes]) -> None:
        """A utility call of an external client: answered by the engine, or by us with a failure."""
        self._calls[(seat.index, call.call_id)] = None
        if self.hold.is_holding:
            if len(self._kept) < MAX_KEPT:
                self._kept[seat.index, call.call_id] = seat, call, frames
            else:
                self._fail_call(
                    seat.index, call.call_id, f"{call.method}: {MAX_KEPT} calls wait for the engine already"
                )
            return
        self._send_call(seat, call, frames)

    def _send_call(self, seat: Seat, call: UtilityCall, frames: list[bytes]) -> None:
        try:
            self._daemon.relay.send(seat, frames)
        except CtlError as error:
            self._fail_call(seat.index, call.call_id, f"{call.method}: {error.message}")

    def refuse(self, client: int, request_id: str, error: CtlError) -> None:
        """Its client hears ERROR with the reason: without any output it would wait for ever. An event a second at most:
        a busy frontend of a cordoned engine would push every other out. Those between are told as one number."""
        now = time.monotonic()
        if now - self._told_at >= TELL_EVERY_S and not self._untold:
            self._daemon.events.add("refused", f"{request_id[:80]} of client {client}: {error.message}")
            self._told_at = now
        else:
            self._untold += 1
            if self._untold == 1:
                self._daemon.loop.after(TELL_EVERY_S, self._tell_refused)
        self._tell(client, request_id, error.message)

    def _tell_refused(self) -> None:
        untold, self._untold = self._untold, 0
        self._told_at = time.monotonic()
        self._daemon.events.add("refused", f"{count(untold, 'more request')} refused", requests=untold)

    # ------------------------------------------------------------ from the engine

    def on_outputs(self, seat: Seat, message: EngineCoreOutputs) -> list[EngineCoreOutput]:
        """Those of requests that are in the table."""
        outputs = message.outputs if not self._owed else [one for one in message.outputs if not self._is_owed(one)]
        for output in outputs:
            self.ledger.on_output(output)
        if message.utility_output is not None and not seat.is_own:
            self._calls.pop((seat.index, message.utility_output.call_id), None)
        return outputs

    def _is_owed(self, output: EngineCoreOutput) -> bool:
        if output.request_id not in self._owed:
            return False
        if output.finish_reason is not None:
            self._owed[output.request_id] -= 1
            self._owed = +self._owed
        return True

    def is_orphaned(self, seat: Seat, frames: list[bytes]) -> bool:
        """Whether this is the answer to a call of a frontend that is gone: its successor would not survive it."""
        if not self._orphaned:
            return False
        call_id = self._daemon.relay.answered_call(seat, frames)
        if call_id is None or (seat.index, call_id) not in self._orphaned:
            return False
        self._orphaned.discard((seat.index, call_id))
        return True

    async def abort_by_operator(self, ids: Sequence[str], *, by_drain: bool = False) -> None:
        """Their clients hear ERROR: at once where the engine would tell them nothing, or is too slow to. Requests of
        our own engine stay in the table until it has let go of them. `by_drain`: at its deadline."""
        daemon = self._daemon
        flights = [flight for name in ids if (flight := daemon.inflight.flights.get(name)) is not None]
        for flight in flights:
            flight.claim("drain" if by_drain else "operator")
        if self.hold.is_holding or not daemon.kind.has_own_utilities:
            if not self.hold.is_holding:
                daemon.relay.abort(list(ids))
            for flight in flights:
                self.end(flight, ABORTED_BY_OPERATOR)
            return
        daemon.loop.after(TELL_S, lambda: self._tell_late(flights))
        try:
            await daemon.calls.get("abort_requests", object, list(ids), True, timeout_s=ASK_S)
        except CtlError as error:
            daemon.write_log(f"abort_requests: {error.message}")

    def _tell_late(self, flights: list[Flight]) -> None:
        for flight in flights:
            if not flight.gone.done and flight.client != self._daemon.relay.own.index:
                self._tell_end(flight, ABORTED_BY_OPERATOR)

    def end(self, flight: Flight, text: str, reason: FinishReason = FinishReason.ERROR) -> None:
        """Ends a request from here: its client hears it, the table forgets it."""
        self.ledger.end(flight.id)
        if flight.client == self._daemon.relay.own.index:
            consumer = self._daemon.consumers.get(flight.id)
            if consumer is not None:
                consumer(EngineCoreOutput(flight.id, [], finish_reason=int(reason), stop_reason=text))
        else:
            self._tell_end(flight, text, reason)
        self._daemon.inflight.end(flight, reason)

    def _tell_end(self, flight: Flight, text: str, reason: FinishReason = FinishReason.ERROR) -> None:
        """Once, whatever follows."""
        if not flight.was_told:
            flight.was_told = True
            self._tell(flight.client, flight.id, text, reason)

    def _tell(self, client: int, request_id: str, text: str, reason: FinishReason = FinishReason.ERROR) -> None:
        output = EngineCoreOutput(request_id, [], finish_reason=int(reason), stop_reason=text)
        self._send(client, EngineCoreOutputs(0, [output], timestamp=time.monotonic()))

    def _fail_call(self, client: int, call_id: int, text: str) -> None:
        self._calls.pop((client, call_id), None)
        answer: UtilityOutput = utility_failure(call_id, text)
        self._send(client, EngineCoreOutputs(0, timestamp=time.monotonic(), utility_output=answer))

    def _send(self, client: int, message: EngineCoreOutputs) -> None:
        """In the layout that every version reads."""
        if self.to_client is not None:
            self.to_client(client, [bytes(frame) for frame in encode_outputs(message, Dialect.UNKNOWN)])

    # ------------------------------------------------------------ the engine's end and its successor

    def begin_hold(self, limit_s: float, sampled: str) -> None:
        """From now on nothing is lost: what arrives is kept, what runs will be resumed."""
        if not self.hold.is_holding:
            self.hold.begin(limit_s, "fail" if sampled == "fail" else "resume")
            self._daemon.events.add("hold", f"clients wait for the next engine, {limit_s:g} s at most")

    def engine_ended(self, text: str) -> None:
        """Everything that was in flight ends as an error, unless it is held; our own callers hear it from the engine's
        exit. Calls that the engine took are lost."""
        for client, call_id in [key for key in self._calls if key not in self._kept]:
            self._fail_call(client, call_id, text)
        self._orphaned.clear()
        self._owed.clear()
        if self.hold.is_holding:
            self._end_unwanted()
            self._fail_unresumable()
        else:
            for flight in self._daemon.inflight.end_all():
                self.ledger.end(flight.id)
                if flight.client != self._daemon.relay.own.index:
                    self._tell_end(flight, text)

    def _end_unwanted(self) -> None:
        """What its client has let go of, and what was aborted, is not asked again: with its engine it has ended."""
        for flight in list(self._daemon.inflight.flights.values()):
            if flight.id not in self.ledger.items:
                self._daemon.inflight.end(flight, FinishReason.ABORT)
            elif flight.ended_by in ("operator", "drain"):
                self.end(flight, ABORTED_BY_OPERATOR)

    def _fail_unresumable(self) -> None:
        """Who has nothing to wait for hears it now."""
        asked_for = list(self.ledger.items.items())
        for name, asked in asked_for:
            self._rest_of(name, asked)
        held = len(self.ledger.items)
        failed = len(asked_for) - held
        more = f", {failed:,} that cannot be resumed failed at once" if failed else ""
        self._daemon.events.add("hold", f"{count(held, 'request')} held{more}")

    def engine_up(self) -> None:
        """The successor serves: what was held goes to it, oldest first."""
        if not self.hold.is_holding:
            return
        daemon = self._daemon
        seats = {seat.index: seat for seat in daemon.relay.seats}
        for name, asked in list(self.ledger.items.items()):
            frames = self._rest_of(name, asked)
            try:
                if frames is not None:
                    daemon.relay.send(seats[asked.seat], frames)
            except CtlError as error:
                self._drop(name, error.message)
        kept, self._kept = self._kept, {}
        for seat, call, frames in kept.values():
            self._send_call(seat, call, frames)
        held_s, sent = self.hold.end(), self.ledger.items.values()
        resumed = sum(bool(asked.token_ids) for asked in sent)
        daemon.events.add("hold", f"released after {held_s:.1f} s: {count(len(sent), 'request')}, {resumed:,} resumed")

    def _rest_of(self, name: str, asked: Asked) -> list[bytes] | None:
        """What its successor is sent; None when it cannot go on, which its client has heard then."""
        moves_seed = not self._daemon.kind.draws_by_position
        try:
            return rest_of(asked, self.hold.sampled, moves_seed=moves_seed)
        except NotResumable as error:
            self._drop(name, f"the engine is replaced and this request cannot be resumed: {error}")
            return None

    def _drop(self, name: str, text: str) -> None:
        flight = self._daemon.inflight.flights.get(name)
        if flight is not None:
            self.end(flight, text)
        self.ledger.end(name)

    def _expire(self) -> None:
        """The limit: clients get errors, and so do those that come until an engine is there again."""
        self.fail_held(f"the engine was not back within {self.hold.limit_s:g} s")

    def fail_held(self, text: str) -> None:
        """Nobody will resume them."""
        if not self.hold.is_holding:
            return
        self.hold.end()
        self._kept.clear()
        failed = len(self._daemon.inflight)
        for flight in list(self._daemon.inflight.flights.values()):
            self.end(flight, text)
        for client, call_id in list(self._calls):
            self._fail_call(client, call_id, text)
        self._daemon.events.add("hold", f"{count(failed, 'request')} failed: {text}")

    def client_gone(self) -> None:
        """The external frontend is gone: its requests are aborted, its calls forgotten."""
        daemon = self._daemon
        own = daemon.relay.own.index
        ids = [flight.id for flight in daemon.inflight.flights.values() if flight.client != own]
        self._orphaned |= self._calls.keys() - self._kept.keys()
        self._calls.clear()
        self._kept.clear()
        if ids:
            daemon.events.add("frontend", f"aborted with the frontend that is gone: {count(len(ids), 'request')}")
            self.abort(daemon.relay.own, ids, encode_request(AbortIds(ids)))
