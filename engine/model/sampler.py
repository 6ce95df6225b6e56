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

from engine.model.draw import Draw, draw_tokens
from engine.model.sampler_state import SamplerState

_GREEDY_BELOW = 1e-5
"""A temperature under this divides by nothing sensible."""


class Sampler:
    def __init__(self, seed: int, device: torch.device) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._device = device

    def sample(
        self, logits: Tensor, rows: Sequence[SamplerState], draw: Draw = draw_tokens
    ) -> tuple[list[int], dict[int, str]]:
        """logits (B, V) float32, changed in place for rows that ask for more than the best; `draw`: torch's or compiled
        code. Returns B ids, -1 for a failed row, and the failures by index."""
        errors = self._adjust(logits, rows)
        chosen = [0] * len(rows)
        random = [index for index, row in enumerate(rows) if row.params.temperature >= _GREEDY_BELOW]
        greedy = sorted(set(range(len(rows))) - set(random))
        random = [index for index in random if index not in errors]
        if random:
            drawn = [rows[index] for index in random]
            picked = draw(logits, random, self._uniform(drawn), [row.params for row in drawn]).tolist()
            for index, token in zip(random, picked, strict=True):
                chosen[index] = token
                if token < 0:  # nothing to draw from: the best is what says why
                    greedy.append(index)
        for index, token in zip(greedy, best_tokens(logits, greedy), strict=True):
            chosen[index] = token
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

    def _checked(self, logits: Tensor, chosen: list[int], errors: dict[int, str]) -> tuple[list[int], dict[int, str]]:
        """The best token of a row with NaN is one of them, and a row without any candidate has only -inf."""
        places = torch.tensor(chosen, dtype=torch.int64, device=logits.device)
        return check_values(chosen, logits.gather(1, places[:, None])[:, 0].tolist(), errors)

    def _uniform(self, rows: Sequence[SamplerState]) -> Tensor:
        free = [row.params.seed is None for row in rows]
        drawn = iter(
            torch.rand(sum(free), generator=self._generator, dtype=torch.float64).tolist() if any(free) else ()
        )
        numbers = [
            next(drawn) if row.params.seed is None else seeded_uniform(row.params.seed, row.position) for row in rows
        ]
        return torch.tensor(numbers, dtype=torch.float64, device=self._device)[:, None]


def best_tokens(logits: Tensor, places: Sequence[int]) -> list[int]:
    """logits (B, V) -> the first of the best tokens of each of `places`; of a row with NaN the first NaN."""
    if logits.is_cpu:  # numpy searches sooner than torch: six times at 17 rows of 49,152, 1.4 times at 50
        rows = logits.numpy()
        return [int(rows[index].argmax()) for index in places]
    return logits[torch.tensor(places, dtype=torch.int64, device=logits.device)].argmax(-1).tolist()


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
