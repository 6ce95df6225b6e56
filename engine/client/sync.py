"""SyncMPClient: an engine process of our own, for programs with threads. Any number of them may use one client.

Enters: requests and calls. Leaves: streams of outputs and results. Whoever waits gets EngineDeadError when the engine
dies; nobody waits for a dead one. Dies by close() or shutdown()."""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TypeVar, overload

from engine.client.base import CALL_TIMEOUT_S, MPClient
from engine.client.book import Delivery, Entry, decode_result
from engine.client.launcher import Launch
from engine.client.start import Transport
from engine.config import EngineConfig
from engine.errors import DeadlineError, EngineDeadError
from engine.messages import EngineCoreOutput, EngineCoreRequest, UtilityOutput

T = TypeVar("T")


class Stream(Iterator[EngineCoreOutput]):
    """The outputs of one request in order; the last has a finish_reason. One thread reads it.

    Raises EngineDeadError after what had arrived, DeadlineError when timeout_s passes without an output (it may be
    read on). Left early, by close() or because nobody holds it any more, the request is aborted."""

    def __init__(
        self, client: MPClient, entry: Entry, sink: queue.SimpleQueue[Delivery | None], timeout_s: float | None
    ):
        self._client = client
        self._entry = entry
        self._sink = sink
        self._timeout_s = timeout_s
        self._is_over = False
        self._error: EngineDeadError | None = None

    @property
    def request_id(self) -> str:
        return self._entry.request_id

    def __next__(self) -> EngineCoreOutput:
        if self._error is not None:
            raise EngineDeadError(str(self._error))
        if self._is_over:
            raise StopIteration
        try:
            item = self._sink.get(timeout=self._timeout_s)
        except queue.Empty:
            raise DeadlineError(f"request {self.request_id}: no output within {self._timeout_s:g} s") from None
        if item is None:
            raise StopIteration
        if isinstance(item, EngineDeadError):
            self._error = item
            return next(self)
        if item.finished:
            self.close()
        return item

    def close(self) -> None:
        """Reads no more; aborts the request if it has not ended. Safe to call twice. Any thread: whoever waits in
        next() gets StopIteration."""
        if not self._is_over:
            self._is_over = self._entry.is_left = True
            self._client._let_go(self._entry)
            self._sink.put(None)

    def __del__(self) -> None:
        self.close()


class SyncMPClient(MPClient):
    """Starts its engine at once and blocks until it is ready. Raises EngineStartError; then nothing is left behind.

    Use it in a `with` block: leaving it closes the engine within 3 s."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        transport: Transport = "ipc",
        launch: Launch = "command",
        start_timeout_s: float = 300.0,
        log_path: Path | None = None,
    ) -> None:
        super().__init__(config, transport=transport, launch=launch, start_timeout_s=start_timeout_s, log_path=log_path)
        self._attach(self._start(), self._book.route, self._book.fail)

    def add(self, request: EngineCoreRequest) -> str:
        """Sends a request and returns its id at once; its outputs wait for stream(id), in memory.

        A refusal by the engine is an output: finish_reason ERROR, the text as stop_reason. Raises EngineDeadError,
        RequestRefused (a request of this client with this id has not ended)."""
        return self._add(request, queue.SimpleQueue()).request_id

    def stream(self, request: EngineCoreRequest | str, timeout_s: float | None = None) -> Stream:
        """The outputs of a request, sent now, or added before (by id; by one reader). timeout_s: for each output.

        Raises EngineDeadError, RequestRefused (id in use, or not known)."""
        if isinstance(request, str):
            entry = self._book.find(request)
        else:
            entry = self._add(request, queue.SimpleQueue())
        assert isinstance(entry.sink, queue.SimpleQueue)
        return Stream(self, entry, entry.sink, timeout_s)

    def abort(self, request_ids: str | Iterable[str]) -> None:
        """Ends requests of this client; each stream ends with finish_reason ABORT, unless it had ended. Does not wait.

        Unknown ids are ignored. Raises EngineDeadError."""
        self._abort(request_ids)

    @overload
    def call(self, method: str, *args: object, timeout_s: float = CALL_TIMEOUT_S) -> object: ...
    @overload
    def call(self, method: str, *args: object, result_type: type[T], timeout_s: float = CALL_TIMEOUT_S) -> T: ...
    def call(
        self, method: str, *args: object, result_type: type[object] = object, timeout_s: float = CALL_TIMEOUT_S
    ) -> object:
        """Calls a utility and returns its result: plain values, or a result_type (a struct, a builtin).

        Raises UtilityError (refused, failed, or an answer of another type), DeadlineError after timeout_s (a later
        answer is discarded), EngineDeadError, TypeError (an argument that cannot be sent)."""
        answer: Future[UtilityOutput] = Future()
        call_id = self._call(method, args, answer)
        try:
            output = answer.result(timeout_s)
        except TimeoutError:
            raise DeadlineError(f"utility {method}: no answer within {timeout_s:g} s") from None
        finally:
            self._book.forget_call(call_id)
        return decode_result(method, output, result_type)

    def shutdown(self, timeout_s: float = 0.0) -> None:
        """Lets requests finish for timeout_s seconds, aborts the rest, ends the engine. At most timeout_s + 3 s.

        Everything is given back in any case. Raises EngineDeadError if the engine had died, or dies, by itself.
        Once closed, it does nothing."""
        if self.is_closed:
            return
        try:
            self._book.check_alive()
            if timeout_s > 0:
                self._drain(timeout_s)
        finally:
            self.close()

    def close(self) -> None:
        """Ends the engine within 3 s whatever it does: TERM, then KILL. Never raises for a dead engine. Idempotent."""
        self._close()

    def __enter__(self) -> SyncMPClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
