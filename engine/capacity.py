"""How many KV blocks there are and how long a request may be, from what was asked and what memory there is."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.executor.base import ModelInfo


@dataclass(frozen=True, slots=True)
class Capacity:
    """The effective limits. `asked_max_model_len` is what was asked for, or what the model says."""

    num_gpu_blocks: int
    max_model_len: int
    asked_max_model_len: int

    @property
    def was_cut(self) -> bool:
        return self.max_model_len < self.asked_max_model_len


def plan_capacity(config: EngineConfig, model: ModelInfo, measured_kv_bytes: int) -> Capacity:
    """Blocks that fit the memory; max_model_len is cut to what they hold. Raises ConfigError with the numbers."""
    asked = config.max_model_len or model.max_position_embeddings
    if asked > model.max_position_embeddings:
        raise ConfigError(
            f"max_model_len {asked:,} is more than the {model.max_position_embeddings:,} positions this model knows"
        )
    memory = config.kv_memory if config.kv_memory is not None else measured_kv_bytes
    blocks = config.num_gpu_blocks or memory // model.kv_bytes_per_block
    if blocks < 1:
        raise ConfigError(
            f"the KV cache needs {model.kv_bytes_per_block:,} bytes for one block of {config.block_size} tokens, "
            f"{memory:,} bytes are there; raise kv_memory or lower block_size"
        )
    return Capacity(blocks, min(asked, blocks * config.block_size), asked)
