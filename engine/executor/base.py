"""The interface between the engine core and whatever runs the model.

Main thread only. `execute_model` blocks. An executor whose workers die calls the failure callback, from any thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from engine.config import EngineConfig
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

Progress = Callable[[str, str], None]
"""(phase, detail): told during start, e.g. ("load weights", "0.27 GB in 1 shard")."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the rest of the engine needs to know of the model."""

    architecture: str
    vocab_size: int
    max_position_embeddings: int
    eos_token_ids: tuple[int, ...]
    dtype: str
    """Effective dtype of weights and KV, e.g. bfloat16."""
    compute_dtype: str
    """What the matmuls run in; float32 where the CPU has no bf16 instructions."""
    kv_bytes_per_block: int
    weight_bytes: int
    device: str
    held_as: str = ""
    """The type that the weights have in memory, where it is not `dtype`."""
    held_why: str = ""
    """Why, and until when."""


class Executor(ABC):
    """Built once with load_model then initialize_cache; after shutdown() it is never used again."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._failure_callback: Callable[[str], None] | None = None

    def register_failure_callback(self, callback: Callable[[str], None]) -> None:
        """`callback(cause)` will be called once, from any thread, if the executor can never run another step."""
        self._failure_callback = callback

    @property
    def kernels(self) -> str:
        """Which code computes the steps now, in words; empty when there is nothing to choose. Any thread."""
        return ""

    @abstractmethod
    def load_model(self, progress: Progress) -> ModelInfo:
        """Reads the weights. Raises ModelError."""

    @abstractmethod
    def measure_kv_memory(self) -> int:
        """Bytes that the KV cache may take now that the weights are in memory."""

    @abstractmethod
    def initialize_cache(self, num_gpu_blocks: int) -> None:
        """Allocates the cache. Pages are touched only when used."""

    @abstractmethod
    def warm_up(self) -> None:
        """Runs small steps so that the first request costs what the tenth does."""

    @abstractmethod
    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        """Runs one step. Faults of single requests come back in `errors`; an exception means no step can run."""

    def rest(self) -> None:  # noqa: B027 - most have nothing to do
        """Work has ended; there may be more at once, so whatever is done here takes no longer than a millisecond."""

    @abstractmethod
    def sleep(self, level: int) -> None:
        """Frees the KV cache memory (level 1), and the weights too (level 2)."""

    @abstractmethod
    def wake_up(self) -> None:
        """Undoes sleep; the cache comes back empty."""

    def profile(self, is_start: bool, path: str | None) -> str | None:
        """Starts or stops a profiler; returns the trace file when it stops one."""
        raise RuntimeError(f"{type(self).__name__} has no profiler")

    @abstractmethod
    def shutdown(self) -> None:
        """Frees everything. Safe to call twice."""
