"""Log-probabilities as clients get them: of the raw logits, the chosen token first, then the k best.

Enters: float32 logits. Leaves: engine.messages.Logprobs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from engine.messages import Logprobs, NdArray

CHUNK_ROWS = 64
"""Prompt rows whose logits exist at one time: 64 x 50,000 x 4 bytes is 13 MB."""
_TORCH_NAMES = {"<i4": "int32", "<f4": "float32", "<i8": "int64"}


class Collected:
    """Pieces of one request's log-probabilities, in order. ids (T, k+1)   logprobs (T, k+1)   ranks (T,)"""

    def __init__(self) -> None:
        self._pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, logits: Tensor, chosen: Tensor, best: int) -> None:
        """logits (T, V) float32   chosen (T,) int64   best: how many beside the chosen, -1 for all."""
        scores = torch.log_softmax(logits, -1)
        mine = scores.gather(1, chosen[:, None])
        ranks = (scores > mine).sum(-1) + 1
        top, ids = scores.topk(scores.shape[1] if best < 0 else min(best, scores.shape[1]), -1)
        ids, values = torch.cat((chosen[:, None], ids), 1), torch.cat((mine, top), 1)
        self._pieces.append((ids.to(torch.int32).cpu().numpy(), values.cpu().numpy(), ranks.cpu().numpy()))

    @property
    def rows(self) -> int:
        return sum(len(ranks) for _, _, ranks in self._pieces)

    def message(self, *, as_tensors: bool) -> Logprobs:
        """`as_tensors`: with torch's type names, as prompt log-probabilities are on the wire."""
        ids, values, ranks = (np.concatenate(parts) for parts in zip(*self._pieces, strict=True))
        return Logprobs(
            wire_array(ids, "<i4", as_tensors),
            wire_array(values, "<f4", as_tensors),
            # Real frames have 64-bit ranks for output tokens and 32-bit ones for prompt tokens.
            wire_array(ranks, "<i4" if as_tensors else "<i8", as_tensors),
        )


def wire_array(values: np.ndarray, dtype: str, as_tensor: bool) -> NdArray:
    data = np.ascontiguousarray(values, dtype)
    return NdArray(_TORCH_NAMES[dtype] if as_tensor else dtype, list(data.shape), data.tobytes())


def add_prompt_rows(
    collected: Collected, hidden: Tensor, following: list[int], best: int, head: Callable[[Tensor], Tensor]
) -> None:
    """hidden (n, H) of prompt tokens, `following` the n tokens after each. A few rows' logits at a time."""
    for first in range(0, len(following), CHUNK_ROWS):
        rows = slice(first, min(first + CHUNK_ROWS, len(following)))
        collected.add(head(hidden[rows]), torch.tensor(following[rows], device=hidden.device), best)


def token_logprobs(raw: Tensor, chosen: list[int], best: list[int]) -> list[Logprobs]:
    """raw (B, V) float32, one chosen id and one count of best tokens (-1: all) a row -> one message a row."""
    scores = torch.log_softmax(raw, -1)
    vocab = scores.shape[1]
    ids = torch.tensor(chosen, device=raw.device)[:, None]
    mine = scores.gather(1, ids)
    ranks = ((scores > mine).sum(-1) + 1).cpu().numpy()
    counts = [vocab if count < 0 else min(count, vocab) for count in best]
    top, top_ids = scores.topk(max(counts), -1)
    all_ids = torch.cat((ids, top_ids), 1).to(torch.int32).cpu().numpy()
    values = torch.cat((mine, top), 1).cpu().numpy()
    return [
        Logprobs(
            wire_array(all_ids[row : row + 1, : count + 1], "<i4", False),
            wire_array(values[row : row + 1, : count + 1], "<f4", False),
            wire_array(ranks[row : row + 1], "<i8", False),
        )
        for row, count in enumerate(counts)
    ]
