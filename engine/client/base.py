"""MPClient: what SyncMPClient and AsyncMPClient share. Starts an engine of its own and owns it.

Enters: settings, requests, calls. Leaves: messages to the engine, and, through the book, outputs to whoever waits.
Any thread may call it. Dies by close() or shutdown(), with the last reference to it, or at the end of the program."""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from engine.client.book import Answer, Book, Entry, Sink, decode_result
from engine.client.launcher import Launch
from engine.client.link import Link
from engine.client.start import StartedEngine, Transport, start_engine
from engine.codec import encode_value
from engine.config import EngineConfig
from engine.errors import EngineDeadError
from engine.messages import (
    AbortIds,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    SamplingParams,
    UtilityCall,
    UtilityOutput,
)

CALL_TIMEOUT_S = 60.0
DRAIN_MARGIN_S = 0.5
_counter = itertools.count(1)


def new_request(
    prompt_token_ids: list[int],
    sampling_params: SamplingParams | None = None,
    *,
    request_id: str | None = None,
    priority: int = 0,
) -> EngineCoreRequest:
    """A request for one generation. request_id: None, a new one. priority: lower runs first."""
    return EngineCoreRequest(
        request_id or f"r{os.getpid():x}-{next(_counter):x}",
        prompt_token_ids,
        sampling_params=sampling_params or SamplingParams(),
        priority=priority,
    )


class MPClient:
    """Not to be made itself. Keyword arguments of both clients:

    transport        ipc (sockets in a private directory, mode 0700) or tcp (127.0.0.1)
    launch           command (`python -m engine`) or process (multiprocessing, spawn)
    start_timeout_s  from spawn to ready
    log_path         where the engine's log goes; None: a file that is removed with the client"""

    def __init__(
        self,
        config: EngineConfig,
        *,
        transport: Transport = "ipc",
        launch: Launch = "command",
        start_timeout_s: float = 300.0,
        log_path: Path | None = None,
    ) -> None:
        self.config = config
        self._options = (transport, launch, start_timeout_s, log_path)
        self._book = Book()
        self._link: Link | None = None
        self._given_up = threading.Event()

    # ------------------------------------------------------------ start

    def _start(self) -> StartedEngine:
        """Blocks until ready. Raises EngineStartError; then nothing is left behind."""
        transport, launch, start_timeout_s, log_path = self._options
        return start_engine(
            self.config,
            transport=transport,
            launch=launch,
            start_timeout_s=start_timeout_s,
            log_path=log_path,
            given_up=self._given_up.is_set,
        )

    def _attach(
        self,
        started: StartedEngine,
        deliver: Callable[[EngineCoreOutputs], None],
        fail: Callable[[EngineDeadError], None],
    ) -> None:
        """The receiver thread runs from here on. Callbacks must not hold this client, or it could never be let go."""
        self._link = link = Link(started, deliver, fail, self._book.forget)
        weakref.finalize(self, link.close).atexit = False  # the link's own exit handler does it, in the right order

    # ------------------------------------------------------------ what it is

    @property
    def link(self) -> Link:
        """Raises EngineDeadError before the start."""
        if self._link is None:
            raise EngineDeadError("this client has not been started")
        return self._link

    @property
    def ready(self) -> EngineCoreReadyResponse:
        """The effective limits: max_model_len, num_gpu_blocks, block_size, dtype, ..."""
        return self.link.started.ready

    @property
    def pid(self) -> int:
        """Of the engine process."""
        return self.link.process.pid

    @property
    def is_alive(self) -> bool:
        """As far as we have heard."""
        return self._link is not None and self._book.error is None

    @property
    def num_live(self) -> int:
        """Requests of this client that have not ended."""
        return self._book.num_live

    # ------------------------------------------------------------ messages

    def _add(self, request: EngineCoreRequest, sink: Sink) -> Entry:
        entry, wire = self._book.open(request, sink)
        try:
            self.link.send(wire)
        except BaseException:
            self._book.forget(entry)
            raise
        return entry

    def _abort(self, request_ids: str | Iterable[str]) -> None:
        names = [request_ids] if isinstance(request_ids, str) else request_ids
        wire_ids = self._book.wire_ids(names)
        if wire_ids:
            self.link.send(AbortIds(wire_ids))

    def _call(self, method: str, args: tuple[object, ...], answer: Answer) -> int:
        encoded = [encode_value(argument) for argument in args]
        call_id = self._book.open_call(answer)
        try:
            self.link.send(UtilityCall(0, call_id, method, encoded))
        except BaseException:
            self._book.forget_call(call_id)
            raise
        return call_id

    def _let_go(self, entry: Entry) -> None:
        """The reader of this request is gone. Takes part in finalizers: no lock but the link's queue."""
        if self._link is not None:
            self._link.discard(entry)

    # ------------------------------------------------------------ the end

    def _close(self) -> None:
        self._given_up.set()
        if self._link is not None:
            self._link.close()

    @property
    def is_closed(self) -> bool:
        """By us; a dead engine is not a closed client."""
        return self._link is None or self._link.is_closed

    def _drain(self, timeout_s: float) -> None:
        """Blocks until the engine has ended or timeout_s is over.

        Raises EngineDeadError if it died of something else, UtilityError if it refused to drain."""
        end = time.monotonic() + timeout_s + DRAIN_MARGIN_S
        process = self.link.process
        answer: Future[UtilityOutput] = Future()
        self._call("shutdown", (timeout_s,), answer)
        with suppress(TimeoutError):  # a step that takes longer than the whole drain
            decode_result("shutdown", answer.result(timeout_s), object)
        if process.wait(end - time.monotonic()) and process.exit_status() != 0:
            raise EngineDeadError(process.describe_end())
