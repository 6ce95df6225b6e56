"""Weights as codes: the formulas, their bounds, and a model that stays near the one it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from bench.kernels import TEXT
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.executor.uniproc import UniProcExecutor
from engine.model.device import cpu_has_bf16
from engine.model.inputs import Row
from engine.model.quantise import GROUP, PADDED_TO, encode, round_weights, rounded
from tests.support.default_model import default_model
from tests.support.native import random_weights, small_config
from tests.support.steps import Job, Steps, load
from tests.support.tiny_model import make_tiny_model

BITS = [8, 4]


def random(rows: int, inputs: int, mean: float = 0.0) -> Tensor:
    return torch.randn(rows, inputs, generator=torch.Generator().manual_seed(inputs)) + mean


@pytest.mark.parametrize("inputs", [2, 64, 70, 576])
@pytest.mark.parametrize("mean", [0.0, 3.0])
@pytest.mark.parametrize("bits", BITS)
def test_no_weight_moves_by_more_than_half_a_step(inputs: int, mean: float, bits: int) -> None:
    matrix = random(9, inputs, mean)
    coded = encode(matrix, bits)
    assert coded.codes.shape == (9, -(-inputs // PADDED_TO) * PADDED_TO)
    step = coded.scales.repeat_interleave(GROUP[bits], 1)[:, :inputs]
    # The lowest of int4 is rounded to bfloat16 too: 2^-9 of it.
    slack = 0.0 if bits == 8 else float(matrix.abs().max()) * 2.0**-8
    assert bool(((coded.weights(inputs) - matrix).abs() <= step * 0.5001 + slack).all())


@pytest.mark.parametrize("bits", BITS)
def test_what_was_rounded_stays_what_it_is(bits: int) -> None:
    once = rounded(random(40, 192), bits)
    assert torch.allclose(rounded(once, bits), once, rtol=1e-6, atol=0)
    assert rounded(once.bfloat16(), bits).dtype == torch.bfloat16


@pytest.mark.parametrize("bits", BITS)
def test_zeros_stay_zeros(bits: int) -> None:
    assert bool((rounded(torch.zeros(3, 100), bits) == 0).all())
    assert bool((rounded(torch.full((3, 64), 1e-40), bits).abs() < 1e-30).all())


def test_head_and_tied_embedding_are_one_matrix_of_8_bits_and_a_norm_is_left_alone() -> None:
    weights = random_weights(small_config(tie_word_embeddings=True), 1)
    found = round_weights(weights, 4)
    assert found.embedding is found.head
    assert torch.equal(found.head, rounded(weights.head, 8))
    assert torch.equal(found.layers[0].down, rounded(weights.layers[0].down, 4))
    assert found.layers[0].input_norm is weights.layers[0].input_norm
    apart = replace(weights, head=weights.head.clone())
    assert round_weights(apart, 8).embedding is weights.embedding
    assert round_weights(weights, 0) is weights


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="quantization 'int3' is not known; one of none, int8, int4"):
        EngineConfig(model="x", quantization="int3")


@pytest.mark.thread
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_compiled_and_torch_choose_the_same_tokens(tmp_path: Path, quantization: str) -> None:
    tiny = make_tiny_model(tmp_path)

    def jobs() -> list[Job]:
        return [Job([3 + i, 40 + 7 * i, 100 + i], count=20, arrives=i) for i in range(5)]

    eager = load(tiny, dtype="float32", quantization=quantization)
    native = load(tiny, dtype="float32", quantization=quantization, kernels="native")
    assert native.kernels.startswith("native (")
    expected = Steps(eager).run(jobs())
    assert Steps(native).run(jobs()) == expected
    assert expected != Steps(load(tiny, dtype="float32", quantization="none")).run(jobs()) or quantization == "int8"
    native.shutdown()


def logits_of_text(executor: UniProcExecutor, ids: list[int]) -> Tensor:
    assert executor.worker is not None
    with torch.inference_mode():
        hidden = executor.worker.run([Row(ids, 0, len(ids), np.arange(20))])
        return executor.worker.decoder.logits(hidden)


def perplexity(logits: Tensor, ids: list[int]) -> float:
    return float(torch.nn.functional.cross_entropy(logits[:-1].double(), torch.tensor(ids[1:])).exp())


@pytest.mark.model
@pytest.mark.timeout(400)
def test_perplexity_of_a_fixed_text_against_float32() -> None:
    """What docs/kernels.md promises: share of the perplexity, and of the logits the mean distance."""
    model = default_model()
    ids = Tokenizer.from_file(str(model / "tokenizer.json")).encode(TEXT).ids
    expected = logits_of_text(load(model, dtype="float32"), ids)
    promised = {"none": (0.002, 0.03), "int8": (0.02, 0.2), "int4": (0.03, 0.25)}
    if cpu_has_bf16():  # activations are rounded too: by torch after each operator, by compiled code before products
        plain = {"native": (0.002, 0.06), "eager": (0.002, 0.15)}
    else:
        plain = dict.fromkeys(("native", "eager"), promised["none"])
    for kernels in ("native", "eager"):
        for quantization, (share, mean) in {**promised, "none": plain[kernels]}.items():
            executor = load(model, dtype="bfloat16", kernels=kernels, quantization=quantization)
            found = logits_of_text(executor, ids)
            assert abs(perplexity(found, ids) / perplexity(expected, ids) - 1) < share, (kernels, quantization)
            assert float((found - expected).abs().mean()) < mean, (kernels, quantization)
            executor.shutdown()


@pytest.mark.model
@pytest.mark.timeout(400)
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_greedy_text_of_rounded_weights_is_sane(quantization: str) -> None:
    model = default_model()
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    executor = load(model, dtype="bfloat16", kernels="native", quantization=quantization)
    prompt = tokenizer.encode("The history of the Roman Empire begins with").ids
    text = tokenizer.decode(Steps(executor).run([Job(prompt, count=12)])[0])
    assert "found" in text or "Rom" in text, text
    executor.shutdown()
