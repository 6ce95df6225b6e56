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

from engine.model.sampler_state import SamplerState

_CANDIDATES = 1024
"""Sorted tokens looked at first for top_p; nearly always they hold the nucleus."""
_GREEDY_BELOW = 1e-5
"""A temperature under this divides by nothing sensible."""


class Sampler:
    def __init__(self, seed: int, device: torch.device) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._device = device

    def sample(self, logits: Tensor, rows: Sequence[SamplerState]) -> tuple[list[int], dict[int, str]]:
        """logits (B, V) float32, changed in place for rows that ask for it. Returns B ids, -1 for a failed row, and
        the failures by index."""
        if all(row.is_plain_greedy for row in rows):
            chosen = logits.argmax(-1)
            return self._checked(logits, chosen, {})
        errors = self._adjust(logits, rows)
        chosen = logits.argmax(-1)
        random = [index for index, row in enumerate(rows) if row.params.temperature >= _GREEDY_BELOW]
        random = [index for index in random if index not in errors]
        if random:
            every = len(random) == len(rows)
            picked = self._draw(logits if every else logits[random], [rows[index] for index in random])
            chosen = picked if every else chosen.index_copy(0, self._long(random), picked)
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
        values = logits.gather(1, chosen[:, None])[:, 0].tolist()
        ids = chosen.tolist()
        for index, value in enumerate(values):
            if math.isnan(value) or value == -math.inf:
                errors.setdefault(index, "the logits of this request leave no token to choose (NaN, or all masked)")
            if index in errors:
                ids[index] = -1
        return ids, errors

    def _draw(self, logits: Tensor, rows: Sequence[SamplerState]) -> Tensor:
        params = [row.params for row in rows]
        scores = logits / self._column([p.temperature for p in params])
        if any(p.min_p > 0 for p in params):
            least = [math.log(p.min_p) if p.min_p > 0 else -math.inf for p in params]
            scores = scores.masked_fill(scores < scores.amax(-1, keepdim=True) + self._column(least), -math.inf)
        cut = [index for index, p in enumerate(params) if p.top_p < 1 or p.top_k > 0]
        if cut:
            places = self._long(cut)
            kept = keep_top(scores[places], [params[i].top_k for i in cut], [params[i].top_p for i in cut])
            scores = scores.index_copy(0, places, kept)
        return pick(scores, self._column(self._uniform(rows), torch.float64))

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


def seeded_uniform(seed: int, position: int) -> float:
    """In [0, 1), with 53 random bits."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return float((int.from_bytes(digest, "little") >> 11) * 2.0**-53)


def pick(scores: Tensor, uniform: Tensor) -> Tensor:
    """scores (B, V), uniform (B, 1) -> (B,): the first id whose cumulative probability is over the uniform number."""
    total = torch.softmax(scores, -1).double().cumsum(-1)
    chosen = torch.searchsorted(total, uniform * total[:, -1:], right=True)[:, 0]
    return chosen.clamp_(max=scores.shape[1] - 1)


def keep_top(scores: Tensor, top_k: Sequence[int], top_p: Sequence[float]) -> Tensor:
    """scores (B, V) with -inf where a row's top_k (0: all) or then top_p leaves a token out."""
    vocab = scores.shape[1]
    limits = [k if 0 < k < vocab else vocab for k in top_k]
    needed = [limit if limit < vocab else _CANDIDATES for limit in limits]
    width = min(vocab, max(needed))
    best, ids = scores.topk(width, -1)
    keep, covered = _keep_sorted(scores, best, limits, top_p)
    if width < vocab and not bool(covered.all()):
        best, ids = scores.sort(-1, descending=True)
        keep, _ = _keep_sorted(scores, best, limits, top_p)
    kept = best.masked_fill(~keep, -math.inf)
    return torch.full_like(scores, -math.inf).scatter_(1, ids, kept)


def _keep_sorted(scores: Tensor, best: Tensor, limits: Sequence[int], top_p: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Which of the `best` (B, W), sorted downwards, stay, and for each row whether W were enough to tell."""
    vocab, width = scores.shape[1], best.shape[1]
    limit = torch.tensor(limits, device=scores.device)[:, None]
    share = torch.tensor(top_p, dtype=torch.float64, device=scores.device)[:, None]
    within = torch.arange(width, device=scores.device) < limit
    best = best.masked_fill(~within, -math.inf)
    # Probabilities among what top_k leaves: for rows without top_k, among all of the vocabulary.
    whole = torch.logsumexp(scores.double(), -1, keepdim=True)
    base = torch.where(limit < vocab, torch.logsumexp(best.double(), -1, keepdim=True), whole)
    probabilities = (best.double() - base).exp()
    after = probabilities.cumsum(-1)
    keep = within & ((after - probabilities < share) | (share >= 1))
    covered = (limit <= width) | ((after[:, -1:] >= share) & (share < 1))
    return keep, covered[:, 0]
