"""Executors that misbehave on purpose, for `--executor tests.support.executors:Name`."""

from __future__ import annotations

import os
import random
import threading
import time
import zlib
from array import array

from engine.config import EngineConfig
from engine.executor.base import ModelInfo, Progress
from engine.executor.null import NullExecutor
from engine.messages import Logprobs, NdArray
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput


class SlowExecutor(NullExecutor):
    """Each step takes TEST_STEP_S seconds."""

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        if step.rows:
            time.sleep(float(os.environ["TEST_STEP_S"]))
        return super().execute_model(step)


class SlowLoadExecutor(NullExecutor):
    """Loading takes TEST_LOAD_S seconds."""

    def load_model(self, progress: Progress) -> ModelInfo:
        time.sleep(float(os.environ["TEST_LOAD_S"]))
        return super().load_model(progress)


class RaisingExecutor(NullExecutor):
    """The step raises once a request whose id starts with "poison" is in it."""

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        if any(row.request_id.startswith("poison") for row in step.rows):
            raise RuntimeError("the model is broken: poison")
        return super().execute_model(step)


class SlowlyRaisingExecutor(RaisingExecutor):
    """As that, after a second."""

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        if any(row.request_id.startswith("poison") for row in step.rows):
            time.sleep(1.0)
        return super().execute_model(step)


class FailingRowExecutor(SlowExecutor):
    """One request's part of a step fails: the one whose id starts with "poison"."""

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        output = super().execute_model(step)
        for place, row in enumerate(step.rows):
            if row.request_id.startswith("poison"):
                output.sampled[place] = -1
                output.errors[row.request_id] = "out of memory: tried to allocate 1 TiB"
        return output


class LosingExecutor(NullExecutor):
    """A worker of it dies a moment after warm-up, as a process of its own would: seen in another thread."""

    def warm_up(self) -> None:
        threading.Timer(float(os.environ["TEST_STEP_S"]), self._lose).start()

    def _lose(self) -> None:
        if self._failure_callback is not None:
            self._failure_callback("worker 1 was killed by signal 9")


class LogprobsExecutor(NullExecutor):
    """One fixed token with as many logprobs as were asked for: large outputs without a model."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._asked: dict[str, int] = {}

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        for new in step.new_requests:
            self._asked[new.request_id] = new.sampling_params.logprobs or 0
        output = super().execute_model(step)
        for row in step.rows:
            if row.samples and (count := self._asked.get(row.request_id)):
                output.logprobs[row.request_id] = fixed_logprobs(count + 1)
        return output


def fixed_logprobs(width: int) -> Logprobs:
    ids = array("i", range(width)).tobytes()
    values = array("f", [-1.0] * width).tobytes()
    return Logprobs(NdArray("<i4", [1, width], ids), NdArray("<f4", [1, width], values), NdArray("<i8", [1], bytes(8)))


class ChecksumExecutor(NullExecutor):
    """Each token comes with 66,000 bytes of logprobs, never the same, and their checksum."""

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        output = super().execute_model(step)
        for row in step.rows:
            if row.samples:
                output.logprobs[row.request_id] = checked_logprobs(row.start + row.num_tokens)
        return output


NOISE = random.Random(4).randbytes(40_000)


def checked_logprobs(number: int) -> Logprobs:
    """The checksum of ids and values stands where the rank would."""
    ids, values = (NOISE[(7 * number + shift) % 6000 :][:33_000] for shift in (0, 1))
    rank = zlib.crc32(ids + values).to_bytes(8, "little")
    return Logprobs(NdArray("<i4", [1, 8250], ids), NdArray("<f4", [1, 8250], values), NdArray("<i8", [1], rank))
