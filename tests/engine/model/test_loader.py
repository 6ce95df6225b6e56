"""Weights into tensors: tied and untied heads, names, shapes and types that do not fit, dtypes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from engine.errors import ModelError
from engine.model.config import ModelConfig
from engine.model.loader import Target, load_weights, pair_up
from tests.support.steps import Job, Steps, load
from tests.support.tiny_model import make_tiny_model

CPU = torch.device("cpu")
FLOAT32 = Target(torch.float32, torch.float32, CPU)
NAME = "model.safetensors"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_tiny_model(tmp_path / "model")


def change(model: Path, **weights: np.ndarray | None) -> None:
    """Replaces, adds or (None) removes weights; double underscores stand for dots."""
    stored = load_file(model / NAME)
    for key, values in weights.items():
        name = key.replace("__", ".")
        stored.pop(name, None)
        if values is not None:
            stored[name] = values
    save_file(stored, model / NAME)


def set_config(model: Path, **values: object) -> None:
    file = model / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def loaded(model: Path) -> None:
    load_weights(model, ModelConfig.from_dir(model), FLOAT32, lambda detail: None)


def tokens(model: Path) -> list[list[int]]:
    return Steps(load(model)).run([Job([5, 9, 30]), Job(list(range(3, 50)))])


def test_tied_with_and_without_an_output_weight_are_the_same(model: Path) -> None:
    without = tokens(model)
    change(model, lm_head__weight=np.random.default_rng(9).standard_normal((320, 64)).astype(np.float32))
    assert tokens(model) == without


def test_untied_uses_its_own_output_weight(model: Path) -> None:
    tied = tokens(model)
    set_config(model, tie_word_embeddings=False)
    change(model, lm_head__weight=np.random.default_rng(9).standard_normal((320, 64)).astype(np.float32))
    assert tokens(model) != tied


def test_untied_without_an_output_weight_is_refused(model: Path) -> None:
    set_config(model, tie_word_embeddings=False)
    with pytest.raises(ModelError, match=r"lm_head\.weight.*tie_word_embeddings"):
        loaded(model)


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.1.self_attn.q_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.input_layernorm.weight",
    ],
)
def test_a_missing_weight_is_named(name: str, model: Path) -> None:
    change(model, **{name.replace(".", "__"): None})
    with pytest.raises(ModelError, match=f"{name}.*missing"):
        loaded(model)


def test_a_shape_that_does_not_fit_is_named(model: Path) -> None:
    set_config(model, intermediate_size=64)
    with pytest.raises(ModelError, match=r"gate_proj.*\[128, 64\].*\[64, 64\]"):
        loaded(model)


def test_a_type_that_is_no_weight_is_refused(model: Path) -> None:
    change(model, model__norm__weight=np.ones(64, np.int8))
    with pytest.raises(ModelError, match=r"model\.norm\.weight.*I8"):
        loaded(model)


def test_an_unreadable_bias_of_qwen2_is_missed(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model", arch="qwen2")
    change(model, model__layers__0__self_attn__k_proj__bias=None)
    with pytest.raises(ModelError, match=r"k_proj\.bias"):
        loaded(model)


def test_progress_says_the_size(model: Path) -> None:
    said: list[str] = []
    load_weights(model, ModelConfig.from_dir(model), FLOAT32, said.append)
    assert said[0] == "0.00 GB in 1 shard"
    assert said[-1] == "layer 2 of 2"


def test_values_are_rounded_to_the_storage_type_and_kept_in_the_other(model: Path) -> None:
    config = ModelConfig.from_dir(model)
    weights = load_weights(model, config, Target(torch.bfloat16, torch.float32, CPU), lambda detail: None)
    exact = torch.from_numpy(load_file(model / NAME)["model.embed_tokens.weight"])
    assert weights.embedding.dtype == torch.float32
    assert torch.equal(weights.embedding, exact.to(torch.bfloat16).float())
    assert not torch.equal(weights.embedding, exact)


def test_the_weights_are_not_the_file(model: Path) -> None:
    """What is loaded outlives the file, also one overwritten in place."""
    weights = load_weights(model, ModelConfig.from_dir(model), FLOAT32, lambda detail: None)
    before = weights.embedding.clone()
    with open(model / NAME, "r+b") as file:
        file.write(b"\0" * 300_000)
    assert torch.equal(weights.embedding, before)


def test_pairs_lie_side_by_side() -> None:
    rows = torch.arange(16)
    assert pair_up(rows, 2).tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]
    assert pair_up(torch.stack((rows, -rows), 1), 2)[:, 1].tolist() == [-x for x in pair_up(rows, 2).tolist()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_each_dtype_runs_and_is_stated(dtype: str, model: Path) -> None:
    executor = load(model, dtype=dtype)
    assert executor.load_model(lambda phase, detail: None).dtype == dtype
    assert len(Steps(executor).run([Job([5, 9, 30])])[0]) == 8
