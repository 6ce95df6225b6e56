from __future__ import annotations

import json
from pathlib import Path

import pytest

from enginectl.dry_run import plan_memory
from enginectl.errors import UsageError


def write(path: Path, **config: object) -> Path:
    base = {
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "hidden_size": 576,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    (path / "config.json").write_text(json.dumps(base | config))
    (path / "model.safetensors").write_bytes(b"x" * 1000)
    return path


def test_the_arithmetic(tmp_path: Path) -> None:
    memory = plan_memory(write(tmp_path), {"kv_memory": 1024**3})
    assert memory.kv_bytes_per_token == 2 * 30 * 3 * 64 * 2
    assert memory.full_request_bytes == 8192 * memory.kv_bytes_per_token
    assert (memory.weight_bytes, memory.budget_or_guess_bytes, memory.dtype) == (1000, 1024**3, "bfloat16")
    by_blocks = plan_memory(tmp_path, {"num_gpu_blocks": 10, "dtype": "float32", "max_model_len": 100})
    assert by_blocks.kv_budget_bytes == 10 * 16 * 2 * 30 * 3 * 64 * 4
    assert by_blocks.full_request_bytes == 112 * by_blocks.kv_bytes_per_token


def test_a_config_that_says_too_little_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="num_hidden_layers"):
        plan_memory(write(tmp_path, num_hidden_layers="many"), {})
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UsageError, match="no JSON object"):
        plan_memory(tmp_path, {})
