"""Executors of tests that need torch; apart, so that those without it stay light."""

from __future__ import annotations

import os
import time

from engine.executor.base import ModelInfo, Progress
from engine.executor.uniproc import UniProcExecutor


class SlowLoadTorch(UniProcExecutor):
    """Loading takes TEST_LOAD_S seconds more: a start as it is, imports of torch included, that is never ready soon."""

    def load_model(self, progress: Progress) -> ModelInfo:
        info = super().load_model(progress)
        time.sleep(float(os.environ["TEST_LOAD_S"]))
        return info
