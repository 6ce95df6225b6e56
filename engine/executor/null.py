"""An executor that runs no model: one fixed token for each row that samples.

For benchmarks of the loop and for rehearsals. It reads config.json, so limits and refusals are those of the model."""

from __future__ import annotations

from engine.executor.base import Executor, ModelInfo, Progress
from engine.model.config import ModelConfig
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

NULL_TOKEN = 7
DEFAULT_KV_BYTES = 1024**3


class NullExecutor(Executor):
    """Costs nothing, holds nothing."""

    def load_model(self, progress: Progress) -> ModelInfo:
        model = ModelConfig.from_dir(self.config.model)
        dtype = "bfloat16" if self.config.dtype == "auto" else self.config.dtype
        return ModelInfo(
            architecture=model.architecture,
            vocab_size=model.vocab_size,
            max_position_embeddings=model.max_position_embeddings,
            eos_token_ids=tuple(model.eos_token_ids),
            dtype=dtype,
            compute_dtype="none",
            kv_bytes_per_block=model.kv_bytes_per_block(self.config.block_size, 4 if dtype == "float32" else 2),
            weight_bytes=0,
            device="none",
        )

    def measure_kv_memory(self) -> int:
        return DEFAULT_KV_BYTES

    def initialize_cache(self, num_gpu_blocks: int) -> None:
        pass

    def warm_up(self) -> None:
        pass

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        return ModelRunnerOutput(sampled=[NULL_TOKEN if row.samples else -1 for row in step.rows])

    def sleep(self, level: int) -> None:
        pass

    def wake_up(self) -> None:
        pass

    def shutdown(self) -> None:
        pass
