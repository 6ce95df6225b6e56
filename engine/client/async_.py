"""AsyncMPClient: an engine process of our own, for programs on asyncio. Belongs to the loop that started it.

Enters: requests and calls, from coroutines of that loop. Leaves: async streams of outputs and results. The receiver
thread hands over with call_soon_threadsafe, so a busy loop delays its own outputs and nothing else. Dies by close()
or shutdown()."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import TypeVar, overload

from engine.client.base import CALL_TIMEOUT_S, MPClient
from engine.client.book import Delivery, Entry, decode_result
from engine.errors import DeadlineError, EngineDeadError
from engine.messages import EngineCoreOutput, EngineCoreRequest, UtilityOutput

T = TypeVar("T")
A = TypeVar("A")


class AsyncStream(AsyncIterator[EngineCoreOutput]):
    """The outputs of one request in order; the last has a finish_reason. One task reads it.

    Raises EngineDeadError after what had arrived, DeadlineError when timeout_s passes without an output (it may be
    read on). Left early, by aclose() or because nobody holds it any more, the request is aborted."""

    def __init__(self, client: MPClient, entry: Entry, sink: asyncio.Queue[Delivery | None], timeout_s: float | None):
        self._client = client
        self._entry = entry
        self._sink = sink
        self._timeout_s = timeout_s
        self._is_over = False
        self._error: EngineDeadError | None = None

    @property
    def request_id(self) -> str:
        return self._entry.request_id

    async def __anext__(self) -> EngineCoreOutput:
        if self._error is not None:
            raise EngineDeadError(str(self._error))
        if self._is_over:
            raise StopAsyncIteration
        item = await self._next_item()
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, EngineDeadError):
            self._error = item
            raise EngineDeadError(str(item))
        if item.finished:
            self.close()
        return item

    async def _next_item(self) -> Delivery | None:
        if not self._sink.empty():
            return self._sink.get_nowait()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._sink.get()
        except TimeoutError:
            raise DeadlineError(f"request {self.request_id}: no output within {self._timeout_s:g} s") from None

    def close(self) -> None:
        """Reads no more; aborts the request if it has not ended. Safe to call twice; never waits. A task that waits for
        the next output gets StopAsyncIteration."""
        if self._let_go():
            self._sink.put_nowait(None)

    def _let_go(self) -> bool:
        """True the first time. Any thread: a finalizer runs wherever it likes."""
        if self._is_over:
            return False
        self._is_over = self._entry.is_left = True
        self._client._let_go(self._entry)
        return True

    async def aclose(self) -> None:
        """close(), for contextlib.aclosing."""
        self.close()

    def __del__(self) -> None:
        self._let_go()


class AsyncMPClient(MPClient):
    """`async with AsyncMPClient(config) as client:` starts the engine and closes it within 3 s on leaving.

    The constructor starts nothing; without a `with` block await start() and, in the end, close()."""

    async def start(self) -> None:
        """Waits until the engine is ready. Raises EngineStartError; cancelled or failed, nothing is left behind."""
        loop = asyncio.get_running_loop()
        starting = _in_thread(self._start)
        try:
            started = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._given_up.set()
            with suppress(Exception):
                (await starting).abandon()
            raise
        book = self._book
        self._attach(started, _in_loop(loop, book.route), _in_loop(loop, book.fail))

    async def add(self, request: EngineCoreRequest) -> str:
        """Sends a request and returns its id; its outputs wait for stream(id), in memory.

        A refusal by the engine is an output: finish_reason ERROR, the text as stop_reason. Raises EngineDeadError,
        RequestRefused (a request of this client with this id has not ended)."""
        return self._add(request, asyncio.Queue()).request_id

    def stream(self, request: EngineCoreRequest | str, timeout_s: float | None = None) -> AsyncStream:
        """The outputs of a request, sent now, or added before (by id; by one reader). timeout_s: for each output.

        Raises EngineDeadError, RequestRefused (id in use, or not known)."""
        if isinstance(request, str):
            entry = self._book.find(request)
        else:
            entry = self._add(request, asyncio.Queue())
        assert isinstance(entry.sink, asyncio.Queue)
        return AsyncStream(self, entry, entry.sink, timeout_s)

    async def abort(self, request_ids: str | Iterable[str]) -> None:
        """Ends requests of this client; each stream ends with finish_reason ABORT, unless it had ended. Does not wait.

        Unknown ids are ignored. Raises EngineDeadError."""
        self._abort(request_ids)

    @overload
    async def call(self, method: str, *args: object, timeout_s: float = CALL_TIMEOUT_S) -> object: ...
    @overload
    async def call(self, method: str, *args: object, result_type: type[T], timeout_s: float = CALL_TIMEOUT_S) -> T: ...
    async def call(
        self, method: str, *args: object, result_type: type[object] = object, timeout_s: float = CALL_TIMEOUT_S
    ) -> object:
        """Calls a utility and returns its result: plain values, or a result_type (a struct, a builtin).

        Raises UtilityError (refused, failed, or an answer of another type), DeadlineError after timeout_s (a later
        answer is discarded), EngineDeadError, TypeError (an argument that cannot be sent)."""
        answer: asyncio.Future[UtilityOutput] = asyncio.get_running_loop().create_future()
        call_id = self._call(method, args, answer)
        try:
            async with asyncio.timeout(timeout_s):
                output = await answer
        except TimeoutError:
            raise DeadlineError(f"utility {method}: no answer within {timeout_s:g} s") from None
        finally:
            self._book.forget_call(call_id)
        return decode_result(method, output, result_type)

    async def shutdown(self, timeout_s: float = 0.0) -> None:
        """Lets requests finish for timeout_s seconds, aborts the rest, ends the engine. At most timeout_s + 3 s.

        Everything is given back in any case. Raises EngineDeadError if the engine had died, or dies, by itself.
        Once closed, it does nothing."""
        if self.is_closed:
            return
        try:
            self._book.check_alive()
            if timeout_s > 0:
                await _in_thread(lambda: self._drain(timeout_s))
        finally:
            await self.close()

    async def close(self) -> None:
        """Ends the engine within 3 s whatever it does: TERM, then KILL. Never raises for a dead engine. Idempotent.

        Cancelling it does not stop it: the engine ends all the same."""
        await asyncio.shield(_in_thread(self._close))

    async def __aenter__(self) -> AsyncMPClient:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _in_thread(function: Callable[[], A]) -> asyncio.Future[A]:
    """Runs in a thread of its own: the loop's default executor may be full of the program's own work."""
    executor = ThreadPoolExecutor(1, thread_name_prefix="engine-client")
    future = asyncio.wrap_future(executor.submit(function))
    executor.shutdown(wait=False)
    return future


def _in_loop(loop: asyncio.AbstractEventLoop, function: Callable[[A], None]) -> Callable[[A], None]:
    """The same function, run in the loop. When the loop is closed nobody waits there any more: nothing to do."""

    def hand_over(argument: A) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(function, argument)

    return hand_over
