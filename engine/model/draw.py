"""One token a row out of logits or of unnormalised probabilities, by one uniform number a row.

Enters: logits (B, V) float32, or weights of which the largest of a row is 1. Leaves: ids (B,). A cut (top_k, top_p)
keeps tokens in the order of falling weight, of equal ones the lowest id first; drawing is in the order of ids, as the
order by weight may change with the last bit of a logit.

Weights are rounded to whole multiples of 2^-37 (of a vocabulary of 49,152), so that every sum of them is exact in
float64: no order of summing, no batch and no other code (native/src/sampling.h) can change a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor

from engine.messages import SamplingParams

Draw = Callable[[Tensor, list[int], Tensor, Sequence[SamplingParams]], Tensor]
"""logits (B, V), places, uniform (R, 1) float64, params -> ids (R,), one for each of `places`, -1: nothing to draw from
(NaN, all masked). Rows that are drawn from may be changed."""

_SUM_BLOCK = 256
_TOP_BLOCK = 64
_FEW = 64
"""So many of the best tokens are looked at for top_k and top_p, before all of them are sorted."""
_EXACT_BITS = 53


def draw_tokens(logits: Tensor, places: list[int], uniform: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """Draw in torch. Temperature and min_p come before the cuts."""

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=logits.device)[:, None]

    temperatures = column([p.temperature for p in params])
    some = logits[torch.tensor(places, dtype=torch.int64, device=logits.device)]
    # The largest quotient is the quotient of the largest, to the bit: rounding keeps the order.
    largest = some.amax(-1, keepdim=True) / temperatures
    weights = some.div_(temperatures).sub_(largest).exp_()
    if any(p.min_p > 0 for p in params):
        weights.masked_fill_(weights < column([p.min_p for p in params]), 0)
    return draw(weights, uniform, params)


def draw(weights: Tensor, uniform: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """weights (B, V), which may be changed, uniform (B, 1) float64 -> ids (B,), -1: nothing to draw from."""
    cut = [index for index, p in enumerate(params) if is_cut(p)]
    if cut and len(cut) == len(params):
        picked, total = pick_top(weights, uniform, params)
    else:
        picked, total = pick(weights, uniform)
        if cut:
            places = torch.tensor(cut, device=weights.device)
            few, _ = pick_top(weights[places], uniform[places], [params[index] for index in cut])
            picked = picked.index_copy(0, places, few)
    return torch.where(total > 0, picked, -1)


def is_cut(params: SamplingParams) -> bool:
    return params.top_p < 1 or params.top_k > 0


def cuts(params: Sequence[SamplingParams], vocab: int) -> tuple[list[int], list[float]]:
    """For each row how many tokens top_k leaves, and the share of them that top_p leaves."""
    return [p.top_k if 0 < p.top_k < vocab else vocab for p in params], [p.top_p for p in params]


def unit(vocab: int) -> float:
    """What weight 1 is as a whole number: as large as sums of `vocab` of them allow."""
    return float(2.0 ** (_EXACT_BITS - (vocab - 1).bit_length()))


def pick(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """weights (B, V), uniform (B, 1) float64 -> ids (B,), total weight (B,): the first id, in the order of ids, with
    whose weight the sum is over uniform * total."""
    chosen, total = _pick(_whole(weights), uniform)
    return chosen, total / unit(weights.shape[1])


def pick_top(weights: Tensor, uniform: Tensor, params: Sequence[SamplingParams]) -> tuple[Tensor, Tensor]:
    """Like pick, among what each row's top_k (0 or -1: all) and then top_p leave. The total is of all."""
    vocab = weights.shape[1]
    whole = _whole(weights)
    total = _sums(whole)[:, -1]
    limits, shares = cuts(params, vocab)
    device = weights.device
    edges, counts = _edges(
        whole, total, torch.tensor(limits, device=device), torch.tensor(shares, dtype=torch.float64, device=device)
    )
    _apply(whole, edges, counts)
    return _pick(whole, uniform)[0], total / unit(vocab)


def _pick(whole: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    sums = _sums(whole)
    total = sums[:, -1:]
    target = uniform * total
    # Rows without weight, or with NaN, find no place: any will do.
    block = torch.searchsorted(sums, target, right=True).clamp_(max=sums.shape[1] - 1)
    before = functional.pad(sums, (1, 0)).gather(1, block)
    inside = _blocks(whole, _SUM_BLOCK).gather(1, block[:, :, None].expand(-1, -1, _SUM_BLOCK))[:, 0]
    place = torch.searchsorted(before + inside.cumsum(-1, dtype=torch.float64), target, right=True)
    chosen = (block * _SUM_BLOCK + place)[:, 0].clamp_(max=whole.shape[1] - 1)
    return chosen, total[:, 0]


def _edges(whole: Tensor, total: Tensor, limits: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
    """How many tokens each row's cut leaves (B,), and the weight of the last of them (B,)."""
    vocab = whole.shape[1]
    edges, counts = torch.zeros_like(total, dtype=whole.dtype), torch.zeros_like(limits)
    left = torch.arange(len(whole), device=whole.device)
    for width in (_FEW, vocab) if vocab > _FEW else (vocab,):
        best = _largest(whole[left], width)
        count, told = _count(best, total[left], limits[left], shares[left], vocab)
        edges[left[told]] = best.gather(1, count[:, None] - 1)[told, 0]
        counts[left[told]] = count[told]
        left = left[~told]
        if len(left) == 0:
            break
    return edges, counts


def _count(best: Tensor, total: Tensor, limits: Tensor, shares: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """best (B, W) falling -> how many of them stay (B,), and for which rows (B,) these W are enough to tell."""
    width = best.shape[1]
    after = best.cumsum(-1, dtype=torch.float64)
    within = limits.clamp(max=width)
    # top_p is a share of what top_k leaves.
    needed = shares * torch.where(limits < vocab, after.gather(1, within[:, None] - 1)[:, 0], total)
    reached = torch.searchsorted(after, needed[:, None])[:, 0] + 1
    count = torch.where(shares < 1, torch.minimum(within, reached), within)
    told = (limits <= width) | ((limits >= vocab) & (shares < 1) & (after[:, -1] >= needed)) | ~(total > 0)
    return count, told


def _apply(whole: Tensor, edges: Tensor, counts: Tensor) -> None:
    """Zero, in place, for whatever the cut leaves out."""
    edge = edges[:, None]
    whole.masked_fill_(whole < edge, 0)
    excess = (whole >= edge).sum(-1) - counts
    rows = (excess > 0).nonzero()[:, 0]
    if len(rows):
        equal = whole[rows] == edge[rows]
        rank = equal.cumsum(-1)
        whole[rows] = whole[rows].masked_fill(equal & (rank > rank[:, -1:] - excess[rows, None]), 0)


def _largest(whole: Tensor, width: int) -> Tensor:
    """The `width` largest (B, W), falling. The best W are in the W blocks with the largest maxima."""
    if width == whole.shape[1]:
        return _falling(whole)
    blocks = _blocks(whole, _TOP_BLOCK)
    if blocks.shape[1] < 4 * width:
        return whole.topk(width, -1).values
    where = blocks.amax(-1).topk(width, -1).indices
    return blocks.gather(1, where[:, :, None].expand(-1, -1, _TOP_BLOCK)).flatten(1).topk(width, -1).values


def _falling(whole: Tensor) -> Tensor:
    if whole.device.type == "cpu":  # ten times as fast as torch, which sorts their places too
        return torch.from_numpy(np.sort(whole.numpy(), -1)[:, ::-1].copy())
    return whole.sort(-1, descending=True).values


def _whole(weights: Tensor) -> Tensor:
    return (weights * unit(weights.shape[1])).round_()


def _sums(whole: Tensor) -> Tensor:
    """(B, V) -> (B, V / 256): of all until the end of each block."""
    return _blocks(whole, _SUM_BLOCK).sum(-1, dtype=torch.float64).cumsum(-1)


def _blocks(weights: Tensor, size: int) -> Tensor:
    """(B, V) -> (B, V / size, size), filled up with zeros."""
    rest = -weights.shape[1] % size
    return (functional.pad(weights, (0, rest)) if rest else weights).view(len(weights), -1, size)
