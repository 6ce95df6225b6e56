"""Executors that tests name as module:Class: slow ones, and ones that fail."""

from __future__ import annotations

import os
import time

from engine.executor.base import ModelInfo, Progress
from engine.executor.null import NullExecutor
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

STEP_S = 0.02


class Slow(NullExecutor):
    """A step takes 20 ms, so that a request of 1,000 tokens is in flight for as long as a test needs it."""

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        time.sleep(STEP_S)
        return super().execute_model(step)


class Breaks(Slow):
    """The third step fails as a whole."""

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        if step.step >= 3:
            raise RuntimeError("the third step breaks")
        return super().execute_model(step)


class NeverLoads(NullExecutor):
    def load_model(self, progress: Progress) -> ModelInfo:
        time.sleep(600)
        return super().load_model(progress)


class DiesLoading(NullExecutor):
    """Ends without a word, as a process that the kernel kills for its memory."""

    def load_model(self, progress: Progress) -> ModelInfo:
        os._exit(41)
