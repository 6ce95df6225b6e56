"""From logits to one token a row: every token-level field of SamplingParams, over the whole batch at once.

Enters: float32 logits (B, V) and the rows' SamplerState. Leaves: token ids. Owns the engine's random generator. A row
that cannot be prepared is reported by its index and takes part no more; the others do not notice.

The order: masks (allowed ids, bad words, min_tokens), bias, penalties; then temperature, min_p, top_k, top_p; then one
uniform number a row against the cumulative probabilities in the order of token ids. The number of a seeded row comes
from (seed, position) alone, so batches, chunks and preemptions change nothing."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.model.draw import Draw, draw
from engine.model.sampler_state import SamplerState

_GREEDY_BELOW = 1e-5
"""A temperature under this divides by nothing sensible."""


class Sampler:
    def __init__(self, seed: int, device: torch.device) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._device = device

    def sample(
        self, logits: Tensor, rows: Sequence[SamplerState], draw: Draw = draw
    ) -> tuple[list[int], dict[int, str]]:
        """logits (B, V) float32, changed in place for rows that ask for it; `draw`: torch's or compiled code. Returns B
        ids, -1 for a failed row, and the failures by index."""
        if all(row.is_plain_greedy for row in rows):
            return self._checked(logits, logits.max(-1).indices, {})
        errors = self._adjust(logits, rows)
        # max, not argmax: the same and twice as fast.
        top, chosen = logits.max(-1)
        random = [index for index, row in enumerate(rows) if row.params.temperature >= _GREEDY_BELOW]
        random = [index for index in random if index not in errors]
        if random:
            every = len(random) == len(rows)
            places = self._long(random)
            best = (top, chosen) if every else (top[places], chosen[places])
            some = logits if every else logits[places]
            picked = self._draw(some, [rows[index] for index in random], *best, draw)
            chosen = picked if every else chosen.index_copy(0, places, picked)
        return self._checked(logits, chosen, errors)

    def _adjust(self, logits: Tensor, rows: Sequence[SamplerState]) -> dict[int, str]:
        errors = {}
        for index, row in enumerate(rows):
            if row.adjusts:
                try:
                    row.adjust(logits[index])
                except Exception as error:  # one request's own part
                    errors[index] = f"sampling failed: {type(error).__name__}: {error}"
        return errors

    def _checked(self, logits: Tensor, chosen: Tensor, errors: dict[int, str]) -> tuple[list[int], dict[int, str]]:
        """argmax finds NaN where there is one, and a row without any candidate has only -inf."""
        return check_values(chosen.tolist(), logits.gather(1, chosen[:, None])[:, 0].tolist(), errors)

    def _draw(self, logits: Tensor, rows: Sequence[SamplerState], top: Tensor, best: Tensor, draw: Draw) -> Tensor:
        """logits (R, V), their largest (R,) and where that is (R,) -> (R,). `best` where there is nothing to draw from
        (NaN, all masked)."""
        params = [row.params for row in rows]
        temperatures = self._column([p.temperature for p in params])
        # The largest quotient is the quotient of the largest, to the bit: rounding keeps the order.
        weights = (logits / temperatures).sub_(top[:, None] / temperatures).exp_()
        if any(p.min_p > 0 for p in params):
            weights.masked_fill_(weights < self._column([p.min_p for p in params]), 0)
        picked = draw(weights, self._column(self._uniform(rows), torch.float64), params)
        return torch.where(picked < 0, best, picked)

    def _uniform(self, rows: Sequence[SamplerState]) -> list[float]:
        free = [row.params.seed is None for row in rows]
        drawn = iter(
            torch.rand(sum(free), generator=self._generator, dtype=torch.float64).tolist() if any(free) else ()
        )
        return [
            next(drawn) if row.params.seed is None else seeded_uniform(row.params.seed, row.position) for row in rows
        ]

    def _column(self, values: list[float], dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self._device)[:, None]

    def _long(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)


def check_values(
    ids: list[int], values: list[float], errors: dict[int, str] | None = None
) -> tuple[list[int], dict[int, str]]:
    """ids with -1 for each row in `errors` or whose chosen logit is no number, and the errors of all of them."""
    errors = {} if errors is None else errors
    for index, value in enumerate(values):
        if math.isnan(value) or value == -math.inf:
            errors.setdefault(index, "the logits of this request leave no token to choose (NaN, or all masked)")
    return [-1 if index in errors else token for index, token in enumerate(ids)], errors


def seeded_uniform(seed: int, position: int) -> float:
    """In [0, 1), with 53 random bits."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return float((int.from_bytes(digest, "little") >> 11) * 2.0**-53)
