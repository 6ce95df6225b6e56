"""Compiled draws are those of torch, on every width of vectors, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.messages import SamplingParams
from engine.model.decoder import rope_table
from engine.model.draw import draw, draw_tokens, unit
from engine.model.native.bindings import Library
from engine.model.native.decoder import NativeDecoder
from tests.support.draws import CASES, MIXED, case, exact
from tests.support.native import POSITIONS, small_config
from tests.support.steps import Job, Steps, greedy, load
from tests.support.tiny_model import make_tiny_model

pytestmark = pytest.mark.thread


def decoder(library: Library, vocab: int, threads: int = 2) -> NativeDecoder:
    config = small_config(vocab_size=vocab)
    return NativeDecoder(library, config, rope_table(config, POSITIONS), torch.float32, threads, 16)


@pytest.mark.parametrize("vocab", [1, 131, 4099, 49152])
@pytest.mark.parametrize("name", CASES)
def test_the_same_tokens_as_in_torch(library: Library, name: str, vocab: int) -> None:
    weights, uniform = case(name, vocab)
    expected = draw(weights.clone(), uniform, MIXED)
    assert (expected >= 0).all()
    assert torch.equal(decoder(library, vocab).draw(weights, uniform, MIXED), expected)


@pytest.mark.parametrize("vocab", [1, 131, 4099])
@pytest.mark.parametrize("name", CASES)
def test_logits_become_the_weights_of_torch_and_are_drawn_from(library: Library, name: str, vocab: int) -> None:
    """Every second row, with a temperature and a min_p of its own; the others stay as they are."""
    weights, uniform = case(name, vocab)
    logits = weights.log() * 0.7 + 3
    places = list(range(1, len(logits), 2))
    params = [
        SamplingParams(temperature=0.4 + place % 5 * 0.4, min_p=0.1 * (place % 3 == 0), top_k=p.top_k, top_p=p.top_p)
        for place, p in zip(places, MIXED[1::2], strict=True)
    ]
    found = logits.clone()
    ids = decoder(library, vocab).draw_tokens(found, places, uniform[places], params).tolist()
    assert torch.equal(found[0::2], logits[0::2])
    for token, place, p in zip(ids, places, params, strict=True):
        expected = ((logits[place] - logits[place].max()) / p.temperature).exp()
        border = (expected - p.min_p).abs() < 1e-6
        expected[expected < p.min_p] = 0
        drawn_from = found[place] / unit(vocab)
        torch.testing.assert_close(drawn_from[~border], expected[~border], rtol=3e-6, atol=1e-11)
        assert token == exact(drawn_from.numpy(), float(uniform[place]), p)


def test_logits_that_leave_nothing_to_draw_from_stay(library: Library) -> None:
    logits = torch.randn(5, 300)
    logits[1, 7], logits[2], logits[3, 299], logits[4, :299] = torch.nan, -torch.inf, torch.inf, -torch.inf
    found = logits.clone()
    uniform = torch.full((5, 1), 0.5, dtype=torch.float64)
    params = [SamplingParams(temperature=0.8, top_p=0.9)] * 5
    ids = decoder(library, 300).draw_tokens(found, list(range(5)), uniform, params).tolist()
    assert ids[0] >= 0 and ids[1:] == [-1, -1, -1, 299]
    torch.testing.assert_close(found[1:4], logits[1:4], rtol=0, atol=0, equal_nan=True)
    assert draw_tokens(logits, [0, 1, 2, 4], uniform[:4], params[:4]).tolist() == [ids[0], -1, -1, 299]


def test_a_row_alone_and_one_thread_change_nothing(best_library: Library) -> None:
    weights, uniform = case("tied", 4099)
    one = decoder(best_library, 4099, threads=1)
    together = decoder(best_library, 4099).draw(weights.clone(), uniform, MIXED).tolist()
    rows = zip(weights[:, None], uniform[:, None], MIXED, strict=True)
    assert [int(one.draw(row.clone(), u, [p])) for row, u, p in rows] == together


def test_rows_without_any_weight_say_so(library: Library) -> None:
    weights = torch.rand(4, 300).clamp_(min=0.1)
    weights[1], weights[2, 7], weights[3] = 0, torch.nan, torch.nan
    uniform = torch.full((4, 1), 0.5, dtype=torch.float64)
    for params in (SamplingParams(), SamplingParams(top_p=0.5), SamplingParams(top_k=3, top_p=0.5)):
        for found in (
            decoder(library, 300).draw(weights.clone(), uniform, [params] * 4),
            draw(weights, uniform, [params] * 4),
        ):
            assert (found >= 0).tolist() == [True, False, False, False]


def test_rows_that_are_not_side_by_side_in_memory(best_library: Library) -> None:
    weights, uniform = case("random", 131)
    wide = torch.ones(len(weights), 200)
    wide[:, :131] = weights
    expected = draw(weights, uniform, MIXED)
    assert torch.equal(decoder(best_library, 131).draw(wide[:, :131], uniform, MIXED), expected)


def test_steps_draw_in_compiled_code_and_torch_would_draw_the_same(tmp_path: Path, best_library: Library) -> None:
    """Sampled rows beside greedy ones, and some that want log-probabilities."""
    executor = load(make_tiny_model(tmp_path), dtype="float32", kernels="native")
    assert executor.worker is not None
    native, calls = executor.worker.decoder, []
    compiled = native.draw_tokens

    def compare(logits: Tensor, places: list[int], uniform: Tensor, params: Sequence[SamplingParams]) -> Tensor:
        expected = draw_tokens(logits.clone(), places, uniform, params)
        found = compiled(logits, places, uniform, params)
        assert torch.equal(found, expected)
        calls.append(len(found))
        return found

    native.draw_tokens = compare  # type: ignore[method-assign]
    random = [SamplingParams(seed=i, temperature=0.9, top_p=0.95, logprobs=2 if i == 1 else None) for i in range(3)]
    jobs = [Job([5 + i, 90, 7], p, count=10) for i, p in enumerate([*random, greedy(), greedy(logprobs=1)])]
    Steps(executor).run(jobs)
    executor.shutdown()
    assert [job.error for job in jobs] == [None] * 5
    assert calls == [3] * 10
    assert [len(job.logprobs) for job in jobs] == [0, 10, 0, 0, 10]
