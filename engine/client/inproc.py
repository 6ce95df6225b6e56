"""InprocClient: an engine core in this process and thread, no sockets, no second process.

Enters: requests and calls. Leaves: outputs, as fast as whoever reads a stream makes the core step: nothing runs between
two calls. One thread. Torch is imported when a client is made. Dies by close() or shutdown(), or with this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, overload

import msgspec

from engine.client.book import Book, Delivery, Entry
from engine.client.inproc_calls import INPROC_UTILITIES
from engine.codec import Dialect, decode_request, encode_request
from engine.config import EngineConfig
from engine.errors import DeadlineError, EngineDeadError, EngineError, ProtocolError, RequestRefused, UtilityError
from engine.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    FinishReason,
)

if TYPE_CHECKING:
    from engine.core import EngineCore
    from engine.executor.base import Executor

T = TypeVar("T")


class _Sink:
    def __init__(self) -> None:
        self.items: deque[Delivery] = deque()

    def put_nowait(self, item: Delivery, /) -> None:
        self.items.append(item)


class InprocStream(Iterator[EngineCoreOutput]):
    """The outputs of one request in order; the last has a finish_reason. Reading it makes all requests go on.

    Raises EngineDeadError after a step failed as a whole, DeadlineError when timeout_s passes without an output,
    EngineError when the scheduler is paused and nothing can come. Left early, the request is aborted."""

    def __init__(self, client: InprocClient, entry: Entry, sink: _Sink, timeout_s: float | None) -> None:
        self._client = client
        self._entry = entry
        self._sink = sink
        self._timeout_s = timeout_s
        self._is_over = False

    @property
    def request_id(self) -> str:
        return self._entry.request_id

    def __next__(self) -> EngineCoreOutput:
        if self._is_over:
            raise StopIteration
        end = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while not self._sink.items:
            if end is not None and time.monotonic() > end:
                raise DeadlineError(f"request {self.request_id}: no output within {self._timeout_s:g} s")
            if not self._client.step() and not self._sink.items:
                raise EngineError(f"request {self.request_id} cannot go on: nothing can be scheduled (paused?)")
        item = self._sink.items[0]
        if isinstance(item, EngineDeadError):
            raise EngineDeadError(str(item))
        self._sink.items.popleft()
        if item.finished:
            self.close()
        return item

    def close(self) -> None:
        """Reads no more; aborts the request if it has not ended. Safe to call twice."""
        if not self._is_over:
            self._is_over = self._entry.is_left = True
            self._client._unwanted.append(self._entry)

    def __del__(self) -> None:
        self.close()


class InprocClient:
    """Loads the model at once and blocks until it is there. Raises ModelError, ConfigError.

    executor: one of your own instead of the one that config.executor names. Use it in a `with` block."""

    def __init__(self, config: EngineConfig, executor: Executor | None = None) -> None:
        from engine.core import EngineCore

        self.config = config
        self._book = Book()
        self._unwanted: deque[Entry] = deque()
        self._admitted = 0
        self._core: EngineCore | None = EngineCore(config, executor)

    @property
    def core(self) -> EngineCore:
        """Raises EngineDeadError when there is none any more."""
        self._book.check_alive()
        assert self._core is not None
        return self._core

    @property
    def ready(self) -> EngineCoreReadyResponse:
        """The effective limits: max_model_len, num_gpu_blocks, block_size, dtype, ..."""
        return self.core.ready_response()

    @property
    def is_alive(self) -> bool:
        return self._book.error is None

    @property
    def num_live(self) -> int:
        """Requests that have not ended."""
        return self._book.num_live

    # ------------------------------------------------------------ requests

    def add(self, request: EngineCoreRequest) -> str:
        """Takes a request and returns its id; its outputs wait for stream(id), in memory. Runs no step.

        A refusal by the engine is an output: finish_reason ERROR, the text as stop_reason. Raises EngineDeadError,
        RequestRefused (a request with this id has not ended)."""
        return self._add(request).request_id

    def stream(self, request: EngineCoreRequest | str, timeout_s: float | None = None) -> InprocStream:
        """The outputs of a request, taken now, or added before (by id). timeout_s: for each output.

        Raises EngineDeadError, RequestRefused (id in use, or not known)."""
        entry = self._book.find(request) if isinstance(request, str) else self._add(request)
        assert isinstance(entry.sink, _Sink)
        return InprocStream(self, entry, entry.sink, timeout_s)

    def _add(self, request: EngineCoreRequest) -> Entry:
        core = self.core
        entry, wire = self._book.open(request, _Sink())
        self._admitted += 1
        try:
            # As it would arrive: what the caller does with its lists and parameters meanwhile is nothing to the core.
            arrived = decode_request(encode_request(wire, Dialect.V032))
            assert isinstance(arrived, EngineCoreRequest)
            core.add_request(core.preprocess_add_request(arrived, self._admitted))
        except (RequestRefused, ProtocolError) as error:
            refusal = EngineCoreOutput(wire.request_id, [], finish_reason=FinishReason.ERROR, stop_reason=str(error))
            self._book.route(EngineCoreOutputs(outputs=[refusal]))
        except BaseException:
            self._book.forget(entry)
            raise
        return entry

    def abort(self, request_ids: str | Iterable[str]) -> None:
        """Ends requests; each stream ends with finish_reason ABORT, unless it had ended. Unknown ids are ignored.

        Raises EngineDeadError."""
        names = [request_ids] if isinstance(request_ids, str) else request_ids
        self.deliver(self.core.abort_requests(self._book.wire_ids(names)))

    def step(self) -> bool:
        """One step of the core; false when nothing could run. Raises EngineDeadError when it failed as a whole."""
        core = self.core
        self._abort_unwanted(core)
        try:
            self.deliver(core.step())
        except Exception as error:
            self._book.fail(EngineDeadError(f"a step failed: {type(error).__name__}: {error}"))
            raise EngineDeadError(str(self._book.error)) from error
        return bool(core.last_step.rows)

    def _abort_unwanted(self, core: EngineCore) -> None:
        while self._unwanted:
            entry = self._unwanted.popleft()
            if self._book.forget(entry):
                core.abort_requests([entry.wire_id])

    def deliver(self, outputs: dict[int, list[EngineCoreOutput]]) -> None:
        """What the core gave, to the streams it belongs to."""
        for items in outputs.values():
            self._book.route(EngineCoreOutputs(outputs=items))

    # ------------------------------------------------------------ calls

    @overload
    def call(self, method: str, *args: object) -> object: ...
    @overload
    def call(self, method: str, *args: object, result_type: type[T]) -> T: ...
    def call(self, method: str, *args: object, result_type: type[object] = object) -> object:
        """Calls one of INPROC_UTILITIES, with the names and arguments they have on the wire.

        Raises UtilityError (not known here, refused, failed, or a result of another type), EngineDeadError."""
        self._book.check_alive()
        utility = INPROC_UTILITIES.get(method)
        if utility is None:
            raise UtilityError(f"{method!r} is no utility in one process; known: {', '.join(INPROC_UTILITIES)}")
        try:
            result = utility(self, *args)
            return msgspec.convert(msgspec.to_builtins(result), result_type)
        except EngineError:
            raise
        except Exception as error:
            raise UtilityError(f"{method} failed: {type(error).__name__}: {error}") from error

    # ------------------------------------------------------------ the end

    def shutdown(self, timeout_s: float = 0.0) -> None:
        """Lets requests finish for timeout_s seconds, aborts the rest, frees everything.

        Raises EngineDeadError if a step had failed. Once closed, it does nothing."""
        if self._core is None:
            return
        try:
            end = time.monotonic() + timeout_s
            while self.num_live and time.monotonic() < end and self.step():
                pass
            self.core  # noqa: B018  raises for a dead one
        finally:
            self.close()

    def close(self) -> None:
        """Aborts what is live and frees the model. Never raises for a dead engine. Idempotent."""
        core, self._core = self._core, None
        if core is None:
            return
        try:
            if self.is_alive:
                self.deliver(core.abort_requests(None))
        finally:
            core.shutdown()
            self._book.fail(EngineDeadError("this client is closed"))

    def __enter__(self) -> InprocClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
