"""What one client waits for: requests in flight and calls under way. No socket, no thread of its own.

Enters: requests and calls to open, EngineCoreOutputs to route. Leaves: outputs in each request's sink, results in each
call's future. Shared by all threads of its client. Dies by fail(error): everybody who waits, and who comes, gets it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from engine.codec import decode_value
from engine.errors import EngineDeadError, ProtocolError, RequestRefused, UtilityError
from engine.messages import EngineCoreOutput, EngineCoreOutputs, EngineCoreRequest, UtilityOutput

T = TypeVar("T")
Delivery: TypeAlias = EngineCoreOutput | EngineDeadError


class Sink(Protocol):
    """Where one request's outputs go; queue.SimpleQueue and asyncio.Queue are both one."""

    def put_nowait(self, item: Delivery, /) -> None: ...


class Answer(Protocol):
    """Where one call's answer goes; both kinds of Future are one."""

    def done(self) -> bool: ...
    def set_result(self, result: UtilityOutput, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...


class Entry:
    """One request: the caller's id, the id on the wire, and its sink."""

    __slots__ = ("finished", "is_left", "request_id", "sink", "wire_id")

    def __init__(self, request_id: str, wire_id: str, sink: Sink) -> None:
        self.request_id = request_id
        self.wire_id = wire_id
        self.sink = sink
        self.finished = False
        self.is_left = False
        """Its stream was closed: the id is free, whenever the book forgets it. Set without a lock."""


class Book:
    """Wire ids are never used twice, so late outputs of an aborted request cannot reach a new one with its id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_wire: dict[str, Entry] = {}
        self._by_id: dict[str, Entry] = {}
        self._calls: dict[int, Answer] = {}
        self._requests = 0
        self._last_call = 0
        self._error: EngineDeadError | None = None

    # ------------------------------------------------------------ requests

    def open(self, request: EngineCoreRequest, sink: Sink) -> tuple[Entry, EngineCoreRequest]:
        """The entry, and the request as it goes on the wire. Raises EngineDeadError, RequestRefused (id in use)."""
        with self._lock:
            self._check_alive()
            taken = self._by_id.get(request.request_id)
            if taken is not None and not (taken.finished or taken.is_left):
                raise RequestRefused(f"request id {request.request_id!r} is in use by a request that has not ended")
            self._requests += 1
            entry = Entry(request.request_id, f"{request.request_id}-{self._requests:x}", sink)
            self._by_wire[entry.wire_id] = self._by_id[entry.request_id] = entry
        wire = msgspec.structs.replace(
            request,
            request_id=entry.wire_id,
            external_req_id=request.external_req_id or request.request_id,
            arrival_time=request.arrival_time or time.time(),
            client_index=0,
        )
        return entry, wire

    def find(self, request_id: str) -> Entry:
        """Raises RequestRefused when no such request was added, or its end has already been read."""
        with self._lock:
            entry = self._by_id.get(request_id)
        if entry is None or entry.is_left:
            raise RequestRefused(f"no request {request_id!r}: never added, or read to its end")
        return entry

    def wire_ids(self, request_ids: Iterable[str]) -> list[str]:
        """Of those that are still live; the others are ignored. Raises EngineDeadError."""
        with self._lock:
            self._check_alive()
            entries = [self._by_id.get(request_id) for request_id in request_ids]
            return [entry.wire_id for entry in entries if entry is not None and not entry.finished]

    def forget(self, entry: Entry) -> bool:
        """Nobody reads this one any more. True when it had not ended, so that an ABORT is due."""
        with self._lock:
            self._by_wire.pop(entry.wire_id, None)
            if self._by_id.get(entry.request_id) is entry:
                del self._by_id[entry.request_id]
            return not entry.finished and self._error is None

    # ------------------------------------------------------------ calls

    def open_call(self, answer: Answer) -> int:
        """Its call id, never used twice. Raises EngineDeadError."""
        with self._lock:
            self._check_alive()
            self._last_call += 1
            self._calls[self._last_call] = answer
            return self._last_call

    def forget_call(self, call_id: int) -> None:
        """A later answer to it is discarded."""
        with self._lock:
            self._calls.pop(call_id, None)

    # ------------------------------------------------------------ what comes back

    def route(self, outputs: EngineCoreOutputs) -> None:
        """To whom it concerns; what nobody waits for is dropped."""
        with self._lock:
            for output in outputs.outputs:
                self._route_output(output)
            answered = outputs.utility_output
            answer = self._calls.pop(answered.call_id, None) if answered is not None else None
        if answer is not None and answered is not None and not answer.done():
            answer.set_result(answered)

    def _route_output(self, output: EngineCoreOutput) -> None:
        entry = self._by_wire.get(output.request_id)
        if entry is None:
            return
        output.request_id = entry.request_id
        if output.finished:
            entry.finished = True
            del self._by_wire[entry.wire_id]
        entry.sink.put_nowait(output)

    def fail(self, error: EngineDeadError) -> None:
        """The engine is gone: every stream gets what had arrived and then the error, every call the error. Once."""
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            entries, self._by_wire = list(self._by_wire.values()), {}
            calls, self._calls = list(self._calls.values()), {}
            for entry in entries:
                entry.sink.put_nowait(error)
        for answer in calls:
            if not answer.done():
                answer.set_exception(EngineDeadError(str(error)))

    @property
    def error(self) -> EngineDeadError | None:
        return self._error

    def check_alive(self) -> None:
        """Raises EngineDeadError, a new one each time: a traceback belongs to one thread."""
        with self._lock:
            self._check_alive()

    def _check_alive(self) -> None:
        if self._error is not None:
            raise EngineDeadError(str(self._error))

    @property
    def num_live(self) -> int:
        with self._lock:
            return len(self._by_wire)


def decode_result(method: str, output: UtilityOutput, type_: type[T]) -> T:
    """The value of an answer. Raises UtilityError with the engine's failure message, or when the type does not fit."""
    if output.failure_message is not None:
        raise UtilityError(output.failure_message)
    if output.result is None:
        raise UtilityError(f"{method}: the answer carries no result")
    try:
        return decode_value(output.result.value, type_)
    except ProtocolError as error:
        raise UtilityError(f"{method}: the answer does not fit {type_}: {error}") from None
