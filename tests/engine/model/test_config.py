"""config.json: what is read, and what is refused with the file's name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import ModelError
from engine.model.config import ModelConfig
from tests.support.tiny_model import make_tiny_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "model")


def edit(model: Path, file: str = "config.json", **values: object) -> None:
    path = model / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_the_shape_is_read(model: Path) -> None:
    config = ModelConfig.from_dir(model)
    assert (config.num_layers, config.num_heads, config.num_kv_heads, config.head_dim) == (2, 4, 2, 16)
    assert (config.q_size, config.kv_size) == (64, 32)
    assert config.kv_bytes_per_block(16, 2) == 2 * 2 * 2 * 16 * 16 * 2


@pytest.mark.parametrize(
    ("arch", "bias", "norm"),
    [("llama", False, False), ("mistral", False, False), ("qwen2", True, False), ("qwen3", False, True)],
)
def test_architectures_differ_in_bias_and_norm(arch: str, bias: bool, norm: bool, tmp_path: Path) -> None:
    config = ModelConfig.from_dir(make_tiny_model(tmp_path, arch=arch))
    assert (config.family, config.qkv_bias, config.qk_norm) == (arch, bias, norm)


@pytest.mark.parametrize(
    ("own", "generation", "found"),
    [
        (2, None, (2,)),
        (2, 5, (5,)),
        (2, [5, 6], (5, 6)),
        ([3, 4], None, (3, 4)),
        (None, None, ()),
        (2, [5, 10**9], (5,)),
    ],
)
def test_end_tokens(own: object, generation: object, found: tuple[int, ...], model: Path) -> None:
    edit(model, eos_token_id=own)
    edit(model, "generation_config.json", eos_token_id=generation)
    assert ModelConfig.from_dir(model).eos_token_ids == found


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_scaling": LLAMA3, "rope_theta": 5e5},
        {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}, "rope_theta": None},
        {"rope_scaling": {**LLAMA3, "type": "llama3"}, "rope_theta": 5e5},
    ],
)
def test_rope_of_either_form_is_read(rope: dict[str, object], model: Path) -> None:
    edit(model, **rope)
    config = ModelConfig.from_dir(model)
    assert config.rope_theta == 5e5
    assert config.rope_scaling is not None
    assert config.rope_scaling.original_max_position_embeddings == 64


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel"),
        ({"architectures": []}, "None"),
        ({"architectures": "LlamaForCausalLM"}, "architecture"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "yarn"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "linear"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor"),
        ({"partial_rotary_factor": 0.5}, "rope"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"sliding_window": 1024}, "--max-model-len 1024"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"hidden_size": 2**60}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"num_key_value_heads": 3}, "evenly"),
        ({"rms_norm_eps": -1}, "rms_norm_eps"),
        ({"torch_dtype": "float8"}, "float8"),
    ],
)
def test_what_cannot_be_run_is_refused(values: dict[str, object], match: str, model: Path) -> None:
    edit(model, **values)
    with pytest.raises(ModelError, match=rf"config\.json.*{match}"):
        ModelConfig.from_dir(model)


def test_a_window_that_is_off_or_wide_enough_is_accepted(model: Path) -> None:
    edit(model, sliding_window=1024, use_sliding_window=False)
    ModelConfig.from_dir(model)
    edit(model, sliding_window=2048, use_sliding_window=True)
    ModelConfig.from_dir(model)
    edit(model, sliding_window=1024)
    assert ModelConfig.from_dir(model, max_model_len=1024).num_layers == 2


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(name: str, model: Path) -> None:
    (model / name).unlink()
    with pytest.raises(ModelError, match="safetensors" if name == "model.safetensors" else name):
        ModelConfig.from_dir(model)


def test_pickles_and_code_are_never_a_model(model: Path) -> None:
    (model / "modeling_evil.py").write_text("raise SystemExit('ran')")
    edit(model, auto_map={"AutoModelForCausalLM": "modeling_evil.Evil"})
    (model / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert ModelConfig.from_dir(model).num_layers == 2
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"pytorch_model\.bin.*never loaded"):
        ModelConfig.from_dir(model)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"nul", b"\xff\xfe", b"[" * 200_000, b'{"a": 1' + b" " * 100])
def test_json_that_is_none_is_refused(content: bytes, model: Path) -> None:
    (model / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json.*download it again"):
        ModelConfig.from_dir(model)


def test_what_is_no_directory_is_refused(tmp_path: Path, model: Path) -> None:
    for path, match in (
        (tmp_path / "none", "no such"),
        (model / "config.json", "not a directory"),
        (tmp_path, "config"),
    ):
        with pytest.raises(ModelError, match=match):
            ModelConfig.from_dir(path)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="converted"):
        ModelConfig.from_dir(tmp_path / "m.gguf")


@pytest.mark.parametrize("module", ["config", "store", "safetensors_file"])
def test_no_torch_and_no_numpy(module: str) -> None:
    program = f"import sys, engine.model.{module}; sys.exit(bool({{'torch', 'numpy', 'gguf'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
