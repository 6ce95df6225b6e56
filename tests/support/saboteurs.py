"""Executors that change the engine around them: for what no peer can bring about, seen from outside all the same.

`--executor tests.support.saboteurs:Name`. Each acts when it is made, or once a request with a certain id runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import zmq

import engine.busy_poll
import engine.io_threads
import engine.limits
import engine.proc
import engine.views
from engine.config import EngineConfig
from engine.executor.base import ModelInfo, Progress
from engine.executor.null import NullExecutor
from engine.io_in import Receiver
from engine.io_out import OutputThread
from engine.proc import EngineCoreProc
from engine.queues import Emit
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput
from engine.scheduler.scheduler import Scheduler
from tests.support.executors import SlowExecutor
from tests.support.paced_executor import PacedExecutor


def replace(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)


class HastyExecutor(NullExecutor):
    """The engine loses patience with its input thread after half a second."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        replace(engine.io_threads, "START_S", 0.5)


class AwakeExecutor(PacedExecutor):
    """After two instant calls in a row the input thread stays awake for an hour."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        replace(engine.busy_poll, "QUICK_S", 3600.0)
        replace(engine.busy_poll, "BUSY_POLL_S", 3600.0)


class FullExecutor(NullExecutor):
    """The engine holds 64 KiB of requests at most."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        replace(engine.limits, "MAX_LIVE_REQUEST_BYTES", 64 * 1024)


class SleepyExecutor(NullExecutor):
    """Says when it is woken, and cannot be."""

    def wake_up(self) -> None:
        print("woken", flush=True)
        raise RuntimeError("the memory is somebody else's")


class LatePublisher(NullExecutor):
    """What the loop publishes comes 20 ms late."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        publish = engine.views.publish

        def late(core: EngineCoreProc) -> None:
            time.sleep(0.02)
            publish(core)

        replace(engine.proc, "publish", late)


class _Triggered(NullExecutor):
    """Acts once a step has a request whose id starts with "poison"."""

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        if any(row.request_id.startswith("poison") for row in step.rows):
            self.act()
        return super().execute_model(step)

    def act(self) -> None:
        raise NotImplementedError

    def shutdown(self) -> None:
        print("the executor was shut down", flush=True)
        super().shutdown()


class DyingExecutor(_Triggered):
    """The step raises."""

    def act(self) -> None:
        raise RuntimeError("the model is broken")


class LoadFailure(_Triggered):
    """The model cannot be loaded."""

    def load_model(self, progress: Progress) -> ModelInfo:
        raise MemoryError("no memory for weights")


class OddExecutor(NullExecutor):
    """Its profiler is one in name only."""

    def profile(self, is_start: bool, path: str | None) -> Any:
        if path == "raises":
            return 1 / 0
        if path == "half a character":
            return "\ud800"
        nest: list[Any] = []
        nest.append(nest)
        return nest if path == "nests" else object()


class EngineInKiller(_Triggered):
    """The input thread dies of the next message."""

    def act(self) -> None:
        def receive(receiver: Receiver, frames: list[bytes], client: int) -> None:
            raise MemoryError("engine-in has no memory")

        replace(Receiver, "receive", receive)


class EngineOutKiller(_Triggered):
    """The output thread dies of the next message; TEST_DEATHS 2: the one that takes its place too."""

    def act(self) -> None:
        deaths = int(os.environ["TEST_DEATHS"])
        send = OutputThread._send

        def failing(thread: OutputThread, item: Emit) -> None:
            nonlocal deaths
            deaths -= 1
            if deaths < 0:
                send(thread, item)
            else:
                raise MemoryError("engine-out has no memory")

        replace(OutputThread, "_send", failing)


class StarvingExecutor(NullExecutor):
    """For TEST_STARVE_S seconds from the first request on, nothing can be scheduled."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        schedule = Scheduler.schedule
        began: list[float] = []

        def starving(scheduler: Scheduler) -> SchedulerOutput:
            began.append(time.monotonic())
            if began[-1] - began[0] < float(os.environ["TEST_STARVE_S"]):
                return SchedulerOutput(scheduler.step, [])
            return schedule(scheduler)

        replace(Scheduler, "schedule", starving)


class SocketGuard(SlowExecutor):
    """From the first step on, a main thread that touches a socket dies of it; which threads do is said at the end."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._users: set[str] = set()

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        if not self._users:
            self._users.add("nobody yet")
            for name in ("send", "recv", "send_multipart", "recv_multipart", "poll"):
                replace(zmq.Socket, name, self._guarded(getattr(zmq.Socket, name)))
            replace(zmq.Poller, "poll", self._guarded(zmq.Poller.poll))
        return super().execute_model(step)

    def _guarded(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            self._users.add(threading.current_thread().name)
            if threading.current_thread() is threading.main_thread():
                raise RuntimeError(f"the main loop calls {method.__name__} of a socket")
            return method(*args, **options)

        return call

    def shutdown(self) -> None:
        print("sockets were used by", sorted(self._users), flush=True)
        super().shutdown()
