"""Drawing in blocks against sorting and summing up everything."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.messages import SamplingParams
from engine.model.draw import draw, pick, pick_top
from tests.support.draws import CASES, MIXED, case, exact

WHOLE = pytest.param(49152, marks=pytest.mark.thread)
"""Of a real model: a second of work."""


def slow(weights: np.ndarray, uniform: float, params: SamplingParams) -> int:
    kept = weights.astype(np.float64)
    order = np.argsort(-kept, kind="stable")
    if 0 < params.top_k < len(kept):
        kept[order[params.top_k :]] = 0
    if params.top_p < 1:
        before = np.cumsum(kept[order]) - kept[order]
        kept[order[before >= params.top_p * kept.sum()]] = 0
    sums = kept.cumsum()
    return int(np.searchsorted(sums, uniform * sums[-1], side="right"))


def weights_of(spread: float, vocab: int, rows: int) -> torch.Tensor:
    scores = torch.from_numpy(np.random.default_rng(vocab).normal(0, spread, (rows, vocab)).astype(np.float32))
    return (scores - scores.amax(-1, keepdim=True)).exp()


CUTS = [
    SamplingParams(top_k=k, top_p=p)
    for k, p in (
        (1, 1.0),
        (5, 1.0),
        (64, 0.9),
        (65, 0.5),
        (500, 1.0),
        (1500, 0.9),
        (10**6, 0.3),
        (0, 0.05),
        (0, 0.6),
        (-1, 0.95),
        (0, 0.999),
    )
]


@pytest.mark.parametrize("vocab", [3, 300, 5000, WHOLE])
@pytest.mark.parametrize("spread", [0.01, 2.0, 6.0])
def test_every_cut_draws_what_the_slow_way_draws(vocab: int, spread: float) -> None:
    """A spread of 0.01 is nearly flat: the nucleus is most of the vocabulary."""
    params = CUTS * 3
    weights = weights_of(spread, vocab, len(params))
    uniform = torch.linspace(0, 0.9999, len(params), dtype=torch.float64)[:, None]
    chosen, total = pick_top(weights, uniform, params)
    expected = [slow(row.numpy(), float(u), p) for row, u, p in zip(weights, uniform, params, strict=True)]
    # In a flat distribution the sums of 49,152 single-precision numbers decide which token is at the very edge.
    near = [abs(a - b) <= 2 for a, b in zip(chosen.tolist(), expected, strict=True)]
    assert chosen.tolist() == expected or (spread < 0.1 and all(near))
    torch.testing.assert_close(total, weights.double().sum(-1), rtol=1e-5, atol=0)


@pytest.mark.parametrize("vocab", [1, 255, 256, 257, 49152])
def test_without_cuts_all_tokens_are_drawn_from(vocab: int) -> None:
    weights = weights_of(2.0, vocab, 50)
    uniform = torch.linspace(0, 1 - 2**-40, 50, dtype=torch.float64)[:, None]
    chosen, _ = pick(weights, uniform)
    assert chosen.tolist() == [
        slow(row.numpy(), float(u), SamplingParams()) for row, u in zip(weights, uniform, strict=True)
    ]


def test_tokens_without_weight_are_never_drawn() -> None:
    weights = weights_of(1.0, 49152, 200)
    weights[:, torch.arange(49152) % 7 != 3] = 0
    uniform = torch.cat((torch.linspace(0, 1, 198, dtype=torch.float64), torch.tensor([2**-53, 1 - 2**-53]).double()))
    chosen, _ = pick(weights, uniform.clamp(max=1 - 2**-53)[:, None])
    assert set((chosen % 7).tolist()) == {3}


def test_rows_without_any_weight_say_so() -> None:
    weights = weights_of(1.0, 300, 3)
    weights[1], weights[2] = 0, torch.nan
    uniform = torch.full((3, 1), 0.5, dtype=torch.float64)
    for total in (pick(weights, uniform)[1], pick_top(weights, uniform, [SamplingParams(top_p=0.5)] * 3)[1]):
        assert (total > 0).tolist() == [True, False, False]


@pytest.mark.parametrize("vocab", [1, 64, 300, 5000, WHOLE])
@pytest.mark.parametrize("name", CASES)
def test_every_draw_is_the_exact_one(name: str, vocab: int) -> None:
    weights, uniform = case(name, vocab)
    expected = [exact(row.numpy(), float(u), p) for row, u, p in zip(weights, uniform, MIXED, strict=True)]
    assert draw(weights.clone(), uniform, MIXED).tolist() == expected


@pytest.mark.parametrize("name", CASES)
def test_alone_equals_in_a_batch(name: str) -> None:
    weights, uniform = case(name, 5000)
    together = draw(weights.clone(), uniform, MIXED).tolist()
    rows = zip(weights[:, None], uniform[:, None], MIXED, strict=True)
    assert [int(draw(row.clone(), u, [p])) for row, u, p in rows] == together


@pytest.mark.parametrize(
    "params", [SamplingParams(top_k=2), SamplingParams(top_p=0.4), SamplingParams(top_k=4, top_p=0.5)]
)
def test_of_equal_weights_the_first_ids_stay(params: SamplingParams) -> None:
    weights = torch.tensor([[0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]]).repeat(100, 1)
    uniform = torch.linspace(0, 1 - 2**-53, 100, dtype=torch.float64)[:, None]
    assert set(draw(weights, uniform, [params] * 100).tolist()) == {1, 2}
