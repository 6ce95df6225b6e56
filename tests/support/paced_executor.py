"""Executors that run no model and take a known time, for tests of what stands around an engine.

Used as `--executor tests.support.paced_executor:PacedExecutor`; figures come from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from engine.executor.base import ModelInfo, Progress
from engine.executor.null import NullExecutor
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput


class PacedExecutor(NullExecutor):
    """PACED_STEP_MS a step and PACED_ROW_MS for each row of it; PACED_LOAD_S while the weights are "read";
    PACED_FAIL_FILE makes a load fail while it exists; PACED_NOISE_MB is how much it then says; PACED_CHILD=1 leaves a
    child that ignores TERM; PACED_DEADLOCK_FILE blocks a step while it exists."""

    def load_model(self, progress: Progress) -> ModelInfo:
        if os.path.exists(os.environ.get("PACED_FAIL_FILE", "")):
            raise RuntimeError("weights are broken on purpose")
        time.sleep(float(os.environ.get("PACED_LOAD_S", "0")))
        for number in range(int(os.environ.get("PACED_NOISE_MB", "0")) * 1024):
            print(f"{number:08d} {'noise ' * 169}")
        if os.environ.get("PACED_CHILD"):
            code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(999)"
            self.child = subprocess.Popen([sys.executable, "-S", "-c", code])
        return super().load_model(progress)

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        row_ms = float(os.environ.get("PACED_ROW_MS", "0"))
        time.sleep((float(os.environ.get("PACED_STEP_MS", "5")) + row_ms * len(step.rows)) / 1000)
        while os.path.exists(os.environ.get("PACED_DEADLOCK_FILE", "")):
            time.sleep(0.05)
        until = time.monotonic() + step.num_prefill_tokens * float(os.environ.get("PACED_BURN_S", "0"))
        while time.monotonic() < until:  # a long prefill computes
            pass
        return super().execute_model(step)
