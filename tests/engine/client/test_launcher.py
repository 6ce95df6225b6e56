"""Settings become a command line that the engine reads back as the same settings."""

from __future__ import annotations

import pytest

from engine.__main__ import parse_arguments
from engine.client.launcher import engine_arguments
from engine.config import EngineConfig

EVERY_SETTING = {
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 77,
    "block_size": 8,
    "kv_memory": 123456789,
    "num_gpu_blocks": 99,
    "enable_prefix_caching": False,
    "executor": "module.of:Mine",
    "device": "cpu",
    "kernels": "eager",
    "quantization": "int8",
    "threads": 2,
    "seed": 5,
    "shutdown_timeout_s": 1.5,
    "orphan_grace_s": 2.5,
    "client_byte_budget": 7654321,
    "dialect": "0.32",
    "allow_unsafe_calls": True,
    "log_level": "debug",
}


def test_every_setting_survives_the_command_line() -> None:
    assert set(EVERY_SETTING) | {"model"} == set(EngineConfig.__struct_fields__)
    config = EngineConfig(model="/some/dir", **EVERY_SETTING)  # type: ignore[arg-type]
    parsed, launch = parse_arguments(engine_arguments(config, "ipc:///x/y", 3))
    assert parsed == config
    assert (launch.handshake_address, launch.engine_index, launch.local_frontend) == ("ipc:///x/y", 3, True)
    assert launch.parent_pid is None  # the death pipe alone ties it to us


@pytest.mark.parametrize("model", ["/some/dir", "relative dir/with space"])
def test_defaults_stay_defaults(model: str) -> None:
    config = EngineConfig(model=model)
    parsed, _ = parse_arguments(engine_arguments(config, "tcp://127.0.0.1:1", 0))
    assert parsed == config
