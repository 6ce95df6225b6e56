"""The table of requests in flight: what went in, what has come back, what has just ended.

Fed by the relay with every ADD and every output. Keeps counts and times, never a token or a word."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from engine.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from enginectl.control import RequestView
from enginectl.supervisor.loop import Future

UNFINISHED = (FinishReason.ABORT, FinishReason.ERROR)
EndedBy = Literal["", "client", "operator", "drain", "exit"]
"""Who asked for a request's end: its client let go of it, an operator aborted it, a drain did at its deadline, or its
engine ended. Empty: nobody, or the engine that was told to stop."""
REMEMBER = 2000
"""How many ended requests are known by id, so that a late abort can say `already-finished`."""
_NUMBERED = re.compile(r"^(cmpl-[^-]+)-\d+$")
_CHILD = re.compile(r"^(?:\d+_)?(?P<external>.+?)(?:-\d+)?-[0-9a-f]{8}$")


@dataclass(slots=True)
class Flight:
    """One request. Times are monotonic, s."""

    id: str
    external_id: str
    client: int
    prompt_tokens: int
    max_tokens: int | None
    priority: int
    added_at: float
    output_tokens: int = 0
    cached_tokens: int | None = None
    first_at: float | None = None
    last_at: float | None = None
    ended_by: EndedBy = ""
    was_told: bool = False
    """Its client has heard from us how it ended."""
    gone: Future[FinishReason] = field(default_factory=Future)

    @property
    def family(self) -> str:
        """What an API server calls the whole of it: it numbers the prompts of one call."""
        match = _NUMBERED.match(self.external_id)
        return match[1] if match else self.external_id

    def claim(self, who: EndedBy) -> None:
        """The first to ask for its end counts; nothing once it has ended."""
        if not self.gone.done:
            self.ended_by = self.ended_by or who

    @property
    def was_aborted(self) -> bool:
        """Somebody asked for its end, and that is how it ended."""
        return bool(self.ended_by) and self.gone.done and self.gone.result() in UNFINISHED

    @property
    def is_at_stake(self) -> bool:
        """An end of the engine would cut it off: nobody else asked for its end."""
        return self.ended_by not in ("client", "operator")

    def is_cut_off_by(self, reason: FinishReason) -> bool:
        """Whether a stop or drain is to blame for this end, if one goes on. An error that the engine gave to this one
        alone is none."""
        if reason is FinishReason.ABORT:
            return self.is_at_stake
        return reason is FinishReason.ERROR and self.ended_by in ("drain", "exit")

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_at is None else self.first_at - self.added_at

    @property
    def tpot_ms(self) -> float | None:
        """Between tokens, so far."""
        if self.first_at is None or self.last_at is None or self.output_tokens < 2:
            return None
        return (self.last_at - self.first_at) / (self.output_tokens - 1) * 1000

    def view(self, now: float) -> RequestView:
        cached = None
        if self.cached_tokens is not None and self.prompt_tokens:
            cached = self.cached_tokens / self.prompt_tokens
        return RequestView(
            id=self.id, external_id=self.external_id if self.external_id != self.id else None,
            state="waiting" if self.first_at is None else "running", age_s=now - self.added_at,
            prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens, max_tokens=self.max_tokens,
            cached_ratio=cached, ttft_s=self.ttft_s, tpot_ms=self.tpot_ms, client=self.client, priority=self.priority,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """What an id somebody typed means now."""

    flights: list[Flight] = field(default_factory=list)
    finished: str = ""
    """How it ended, when it is only remembered."""
    ambiguous: list[str] = field(default_factory=list)


def external_id_of(request: EngineCoreRequest) -> str:
    """What its user calls it: given, or the engine's id without the parts that frontends put around it."""
    if request.external_req_id:
        return request.external_req_id
    match = _CHILD.match(request.request_id)
    return match["external"] if match else request.request_id


class InflightTable:
    def __init__(self) -> None:
        self.flights: dict[str, Flight] = {}
        self.cut_off = 0
        """Requests that a stop, a drain or the engine's own end took away from who wanted them, over all runs."""
        self._ended: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self.flights)

    @property
    def at_stake(self) -> int:
        """How many an end of the engine would cut off now."""
        return sum(flight.is_at_stake for flight in self.flights.values())

    def add(self, request: EngineCoreRequest) -> Flight:
        params = request.sampling_params
        flight = Flight(
            id=request.request_id, external_id=external_id_of(request), client=request.client_index,
            prompt_tokens=len(request.prompt_token_ids or ()), max_tokens=params.max_tokens if params else None,
            priority=request.priority, added_at=time.monotonic(),
        )  # fmt: skip
        self.flights[flight.id] = flight
        return flight

    def on_output(self, output: EngineCoreOutput, now: float) -> Flight | None:
        """The flight it belongs to, None when it is unknown. A last output takes it out of the table."""
        flight = self.flights.get(output.request_id)
        if flight is None:
            return None
        if output.new_token_ids:
            flight.output_tokens += len(output.new_token_ids)
            flight.first_at = flight.first_at or now
            flight.last_at = now
        if output.prefill_stats is not None:
            flight.cached_tokens = output.prefill_stats.num_cached_tokens
        if output.finish_reason is not None:
            self.end(flight, FinishReason(output.finish_reason))
        return flight

    def end(self, flight: Flight, reason: FinishReason) -> None:
        self.flights.pop(flight.id, None)
        self.cut_off += not flight.gone.done and flight.is_cut_off_by(reason)
        for name in (flight.id, flight.external_id):
            self._ended[name] = str(reason)
            self._ended.move_to_end(name)
        while len(self._ended) > REMEMBER:
            self._ended.popitem(last=False)
        flight.gone.set_result(reason)

    def end_all(self) -> list[Flight]:
        """The engine is gone: everything that was in flight ends as an error."""
        flights = list(self.flights.values())
        for flight in flights:
            flight.claim("exit")
            self.end(flight, FinishReason.ERROR)
        return flights

    def find(self, asked: str) -> Found:
        """By engine id, external id (all its children), or a unique prefix of either; then among the ended."""
        if asked in self.flights:
            return Found([self.flights[asked]])
        children = [flight for flight in self.flights.values() if asked in (flight.external_id, flight.family)]
        if children:
            return Found(children)
        if asked in self._ended:
            return Found(finished=self._ended[asked])
        return self._by_prefix(asked) if asked else Found()

    def _by_prefix(self, asked: str) -> Found:
        by_external = [flight for flight in self.flights.values() if flight.external_id.startswith(asked)]
        by_id = [flight for flight in self.flights.values() if flight.id.startswith(asked)]
        names = {flight.external_id for flight in by_external} | {flight.external_id for flight in by_id}
        if len(names) > 1:
            return Found(ambiguous=sorted({flight.id for flight in [*by_external, *by_id]})[:10])
        if by_external or by_id:
            return Found(by_external or by_id)
        ended = [name for name in self._ended if name.startswith(asked)]
        return Found(finished=self._ended[ended[0]]) if len(ended) == 1 else Found()

    def views(self) -> list[RequestView]:
        """Oldest first."""
        now = time.monotonic()
        return [flight.view(now) for flight in self.flights.values()]
