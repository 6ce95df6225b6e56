"""Executors that write down every pause of the garbage collector in their engine: `--executor bench.gc_watch:Null`.

The list is kept in memory and written to the file that BENCH_GC_FILE names when the engine ends, as JSON."""

from __future__ import annotations

import gc
import json
import os
import time
from array import array
from pathlib import Path

from engine.executor.base import Executor
from engine.executor.null import NullExecutor
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

FILE = "BENCH_GC_FILE"


class GcWatch:
    """Pauses are those of the whole process from the first step on: they stop every thread."""

    def __init__(self) -> None:
        self._pauses_ms = array("d")
        """Of each: generation, length, and the CPU that it took: a busy machine makes the first longer, not the second.
        Numbers, not objects: what is kept of them must not look like memory that the engine takes."""
        self._began = (0.0, 0.0)
        self._is_watching = False

    def watch(self) -> None:
        """With each step: a start collects on purpose, and does not count."""
        if not self._is_watching:
            self._is_watching = True
            gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        now = (time.perf_counter(), time.thread_time())
        if phase == "start":
            self._began = now
        else:
            wall_ms, cpu_ms = ((end - began) * 1e3 for end, began in zip(now, self._began, strict=True))
            self._pauses_ms.extend((info["generation"], wall_ms, cpu_ms))

    def write(self) -> None:
        """Safe to call twice: the first call counts."""
        if self._is_watching:
            self._is_watching = False
            gc.callbacks.remove(self._note)
            Path(os.environ[FILE]).write_text(json.dumps([*zip(*[iter(self._pauses_ms)] * 3, strict=True)]))


class Watched(Executor):
    """In front of an executor: its steps begin the watch, its end writes what was seen."""

    gc_watch = GcWatch()

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        self.gc_watch.watch()
        return super().execute_model(step)  # type: ignore[safe-super]  # never the last in line

    def shutdown(self) -> None:
        self.gc_watch.write()
        super().shutdown()  # type: ignore[safe-super]


class Null(Watched, NullExecutor):
    """No model."""


def __getattr__(name: str) -> type[Executor]:
    """Uniproc: with a model. Made when asked for, since it brings torch."""
    if name != "Uniproc":
        raise AttributeError(name)
    from engine.executor.uniproc import UniProcExecutor

    class Uniproc(Watched, UniProcExecutor):
        pass

    return Uniproc
