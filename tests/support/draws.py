"""Weights to draw from, flat to peaked, with and without equal ones, and what is to be drawn: by sorting, in exact
numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from engine.messages import SamplingParams

CASES = ("random", "flat", "peaked", "tied", "equal", "mostly nothing")
_KINDS = (
    (0, 1.0),
    (0, 0.95),
    (-1, 0.5),
    (50, 1.0),
    (50, 0.8),
    (1, 0.3),
    (0, 0.01),
    (3000, 1.0),
    (3000, 0.9),
    (70, 0.999),
)
MIXED = [SamplingParams(top_k=k, top_p=p) for k, p in _KINDS] * 2
"""One a row."""


def case(name: str, vocab: int) -> tuple[Tensor, Tensor]:
    """weights (B, vocab), the largest of a row 1, and uniform (B, 1), with both ends."""
    random, rows = np.random.default_rng(vocab + len(name)), len(MIXED)
    scores = random.normal(0, 0.01 if name == "flat" else 8 if name == "peaked" else 2, (rows, vocab))
    if name == "tied":
        scores = np.round(scores * 2) / 2
    if name == "equal":
        scores[:] = 0
    if name == "mostly nothing":
        scores[:, np.arange(vocab) % 5 != 0] = -np.inf
    values = torch.from_numpy(scores.astype(np.float32))
    uniform = random.random((rows, 1))
    uniform[0], uniform[-1] = 0, 1 - 2**-53
    return (values - values.amax(-1, keepdim=True)).exp(), torch.from_numpy(uniform)


def exact(weights: np.ndarray, uniform: float, params: SamplingParams) -> int:
    """Python's own whole numbers and fractions; weights in the unit that leaves sums exact in float64."""
    one = 2 ** (53 - (len(weights) - 1).bit_length())
    whole = [round(weight * one) for weight in weights.tolist()]
    order = sorted(range(len(whole)), key=lambda token: -whole[token])
    if 0 < params.top_k < len(whole):
        order = order[: params.top_k]
    if params.top_p < 1:
        order = _until(order, whole, params.top_p * sum(whole[token] for token in order))
    total = sum(whole[token] for token in order)
    target, passed = Fraction(uniform * total), 0
    for token in sorted(order):
        passed += whole[token]
        if passed > target:
            return token
    return -1


def _until(order: list[int], whole: list[int], needed: float) -> list[int]:
    passed = 0
    for place, token in enumerate(order):
        if passed >= needed:
            return order[:place]
        passed += whole[token]
    return order
