"""The supervisor's one thread: sockets, pipes, timers and the tasks that wait for them.

Readiness comes in, callbacks and coroutines run. Owns the poller. Nothing here blocks but `run`, which wakes for the
nearest timer. A task's own fault ends that task only: it reaches `on_fault` with its traceback."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

import zmq

T = TypeVar("T")
MAX_BLOCK_S = 5.0
MAX_DELAY_S = 10 * 365 * 86400.0
MANY_TIMERS = 2000
"""From here on the shells of cancelled timers are swept at each new one."""


class Cancelled(BaseException):
    """Thrown into a task that nobody wants any more; `finally` blocks run, and may not await."""


class DeadlinePassed(Exception):
    """A wait inside the supervisor reached its limit."""


class Future(Generic[T]):
    """A value that comes later. Awaited by any number of tasks; the first result counts."""

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: dict[Callable[[], None], None] = {}

    def set_result(self, value: T) -> None:
        if not self.done:
            self._value = value
            self._finish()

    def set_error(self, error: BaseException) -> None:
        if not self.done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.done = True
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks:
            callback()

    def when_done(self, callback: Callable[[], None]) -> None:
        if self.done:
            callback()
        else:
            self._callbacks[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Undoes when_done: a future that lives long must not collect everybody who ever waited for it."""
        self._callbacks.pop(callback, None)

    def result(self) -> T:
        """Only when done."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def __await__(self) -> Generator[Future[Any], None, T]:
        if not self.done:
            yield self
        return self.result()


class Task(Future[T]):
    """A running coroutine; itself a Future of its result."""

    def __init__(self, loop: Loop, body: Coroutine[Any, Any, T]) -> None:
        super().__init__()
        self._loop = loop
        self._body = body
        self._waiting: Future[Any] | None = None
        self._wake_up: Callable[[], None] | None = None

    def step(self, waited: Future[Any] | None = None, error: BaseException | None = None) -> None:
        """Runs until the next await. A wake-up from something it no longer waits for is ignored."""
        if self.done or waited is not self._waiting:
            return
        self._waiting = None
        try:
            future = self._body.throw(error) if error is not None else self._body.send(None)
        except StopIteration as stop:
            self.set_result(stop.value)
        except BaseException as fault:
            self.set_error(fault)
            if not isinstance(fault, Cancelled) and self._loop.on_fault is not None:
                self._loop.on_fault(fault)
        else:
            self._waiting = future
            self._wake_up = lambda: self._loop.soon(lambda: self.step(future))
            future.when_done(self._wake_up)

    def cancel(self) -> None:
        """Ends it at its current await. Not to be called by the task itself."""
        if not self.done:
            if self._waiting is not None and self._wake_up is not None:
                self._waiting.forget(self._wake_up)
            self.step(self._waiting, Cancelled())
            self._body.close()
            self.set_error(Cancelled())


class Timer:
    """One entry of the heap; cancelled it stays there as an empty shell until its time."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """Runs in the main thread of the process."""

    def __init__(self) -> None:
        self.on_fault: Callable[[BaseException], None] | None = None
        self.late_s = 0.0
        """How much later than asked the last timer ran: large after this process was stopped itself."""
        self._poller = zmq.Poller()
        self._readers: dict[Any, Callable[[], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._ready: deque[Callable[[], None]] = deque()
        self._order = itertools.count()
        self._stopping = False

    def soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def after(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Any number will do, callers give all kinds: one that is none means at once, as NaN has no place in a heap."""
        timer, delay_s = Timer(callback), min(max(0.0, delay_s), MAX_DELAY_S)
        if len(self._timers) >= MANY_TIMERS:
            self._timers = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
        heapq.heappush(self._timers, (time.monotonic() + delay_s, next(self._order), timer))
        return timer

    def watch(self, source: zmq.Socket[bytes] | int, callback: Callable[[], None]) -> None:
        """Calls back while there is something to read; the callback must take some of it."""
        self._readers[source] = callback
        self._poller.register(source, zmq.POLLIN)

    def unwatch(self, source: zmq.Socket[bytes] | int) -> None:
        if self._readers.pop(source, None) is not None:
            self._poller.unregister(source)

    def spawn(self, body: Coroutine[Any, Any, T]) -> Task[T]:
        task = Task(self, body)
        self.soon(task.step)
        return task

    def sleep(self, delay_s: float) -> Future[None]:
        future: Future[None] = Future()
        self.after(delay_s, lambda: future.set_result(None))
        return future

    async def first(self, *futures: Future[Any], timeout_s: float | None = None) -> bool:
        """True when one of them is done, with a value or an error; False at the deadline. Cancels none."""
        gate: Future[bool] = Future()

        def hit() -> None:
            gate.set_result(True)

        for future in futures:
            future.when_done(hit)
        timer = None if timeout_s is None else self.after(timeout_s, lambda: gate.set_result(False))
        try:
            return await gate
        finally:
            for future in futures:
                future.forget(hit)
            if timer is not None:
                timer.cancel()

    async def within(self, future: Future[T], timeout_s: float) -> T:
        """Its result. Raises DeadlinePassed."""
        if not await self.first(future, timeout_s=timeout_s):
            raise DeadlinePassed(f"no answer within {timeout_s:.1f} s")
        return future.result()

    def stop(self) -> None:
        self._stopping = True

    def run(self) -> None:
        """Until stop()."""
        while not self._stopping:
            self._run_ready()
            self._run_timers()
            if self._ready or self._stopping:
                continue
            for source, _ in self._poller.poll(self._wait_ms()):
                callback = self._readers.get(source)
                if callback is not None:
                    self._guarded(callback)

    def _guarded(self, callback: Callable[[], None]) -> None:
        """One callback's fault is told and ends nothing else."""
        try:
            callback()
        except Exception as fault:
            if self.on_fault is None:
                raise
            self.on_fault(fault)

    def _run_ready(self) -> None:
        for _ in range(len(self._ready)):
            self._guarded(self._ready.popleft())

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            when, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                self.late_s = now - when
                self._guarded(timer.callback)

    def _wait_ms(self) -> int:
        if not self._timers:
            return int(MAX_BLOCK_S * 1000)
        wait_s = self._timers[0][0] - time.monotonic()
        return max(0, min(int(wait_s * 1000) + 1, int(MAX_BLOCK_S * 1000)))
