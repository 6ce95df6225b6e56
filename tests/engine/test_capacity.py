"""How many blocks and how long a request may be."""

from __future__ import annotations

import pytest

from engine.capacity import plan_capacity
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.executor.base import ModelInfo

MODEL = ModelInfo(
    architecture="LlamaForCausalLM",
    vocab_size=100,
    max_position_embeddings=8192,
    eos_token_ids=(2,),
    dtype="bfloat16",
    compute_dtype="float32",
    kv_bytes_per_block=1000,
    weight_bytes=1,
    device="cpu",
)


def test_the_length_is_cut_to_the_cache_and_both_values_are_kept() -> None:
    capacity = plan_capacity(EngineConfig(model="m", max_model_len=4096, kv_memory=100_000), MODEL, 10**9)
    assert capacity.num_gpu_blocks == 100
    assert (capacity.max_model_len, capacity.asked_max_model_len, capacity.was_cut) == (1600, 4096, True)


def test_without_a_setting_memory_is_what_was_measured_and_length_what_the_model_says() -> None:
    capacity = plan_capacity(EngineConfig(model="m"), MODEL, 10**6)
    assert (capacity.num_gpu_blocks, capacity.max_model_len, capacity.was_cut) == (1000, 8192, False)


def test_a_block_count_wins_over_memory() -> None:
    assert plan_capacity(EngineConfig(model="m", num_gpu_blocks=8, kv_memory=10**6), MODEL, 0).num_gpu_blocks == 8


def test_no_room_for_one_block_says_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"needs 1,000 bytes.*999 bytes are there"):
        plan_capacity(EngineConfig(model="m", kv_memory=999), MODEL, 0)


def test_more_than_the_model_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"10,000 is more than the 8,192"):
        plan_capacity(EngineConfig(model="m", max_model_len=10_000), MODEL, 10**9)
