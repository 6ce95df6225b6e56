"""An executor that notes when its engine computes and when its IO threads work, for bench.overlap.

Intervals are kept in memory and written to the file that BENCH_OVERLAP_FILE names when the engine ends, as JSON."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.executor.uniproc import UniProcExecutor
from engine.io_in import Receiver
from engine.io_out import OutputThread
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

FILE = "BENCH_OVERLAP_FILE"
Interval = tuple[float, float]


class Uniproc(UniProcExecutor):
    """With a model. Notes from the first step on."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.computing: list[Interval] = []
        self.io: list[Interval] = []

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        if not self.computing:
            for owner, name in ((Receiver, "receive"), (OutputThread, "_send"), (OutputThread, "_flush")):
                setattr(owner, name, self._noted(getattr(owner, name)))
        began = time.perf_counter()
        try:
            return super().execute_model(step)
        finally:
            self.computing.append((began, time.perf_counter()))

    def _noted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args)
            finally:
                self.io.append((began, time.perf_counter()))

        return call

    def shutdown(self) -> None:
        if self.computing:
            Path(os.environ[FILE]).write_text(json.dumps({"computing": self.computing, "io": self.io}))
        super().shutdown()
