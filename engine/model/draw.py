"""One token a row out of unnormalised probabilities, by one uniform number a row.

Enters: weights (B, V) float32, the largest of a row 1. Leaves: ids (B,). The vocabulary is looked at in blocks: sorting
or summing up 50,000 numbers a row in full costs more than the output head does."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as functional
from torch import Tensor

from engine.messages import SamplingParams

_SUM_BLOCK = 256
_TOP_BLOCK = 64
_WIDTHS = (64, 1024)
"""How many of the best tokens are looked at for top_k and top_p, in turn, before all of them."""


def pick(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """weights (B, V), uniform (B, 1) float64 -> ids (B,), total weight (B,): the first id, in the order of ids, with
    whose weight the sum is over uniform * total."""
    blocks = _blocks(weights, _SUM_BLOCK)
    sums = blocks.sum(-1).double().cumsum(-1)
    total = sums[:, -1:]
    target = uniform * total
    block = torch.searchsorted(sums, target, right=True).clamp_(max=sums.shape[1] - 1)
    before = functional.pad(sums, (1, 0)).gather(1, block)
    # As a share of the block's sum, so that rounding between the two sums leads to no token without weight.
    share = (target - before) / (sums.gather(1, block) - before)
    inner = blocks.gather(1, block[:, :, None].expand(-1, -1, _SUM_BLOCK))[:, 0].double().cumsum(-1)
    place = torch.searchsorted(inner, share * inner[:, -1:], right=True)
    chosen = (block * _SUM_BLOCK + place)[:, 0].clamp_(max=weights.shape[1] - 1)
    return chosen, total[:, 0]


def pick_top(weights: Tensor, uniform: Tensor, params: Sequence[SamplingParams]) -> tuple[Tensor, Tensor]:
    """Like pick, among what each row's top_k (0 or -1: all) and then top_p leave."""
    vocab = weights.shape[1]
    limit = [p.top_k if 0 < p.top_k < vocab else vocab for p in params]
    limits = torch.tensor(limit, device=weights.device)[:, None]
    shares = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=weights.device)[:, None]
    total = _blocks(weights, _SUM_BLOCK).sum(-1).double().sum(-1)
    chosen = torch.zeros(len(weights), dtype=torch.int64, device=weights.device)
    left = torch.arange(len(weights), device=weights.device)
    for width in (*(width for width in _WIDTHS if width < vocab), vocab):
        best, ids = _largest(weights[left], width)
        keep, told = _keep(best, limits[left], shares[left], total[left, None], vocab)
        if bool(told.any()):
            chosen[left[told]] = _pick_few(best[told] * keep[told], ids[told], uniform[left[told]])
        left = left[~told]
        if len(left) == 0:
            break
    return chosen, total


def _keep(best: Tensor, limits: Tensor, shares: Tensor, total: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """best (B, W) falling -> which of them stay (B, W), and for which rows (B,) these W are enough to tell."""
    width = best.shape[1]
    within = torch.arange(width, device=best.device) < limits
    after = (best * within).double().cumsum(-1)
    # top_p is a share of what top_k leaves.
    needed = shares * torch.where(limits < vocab, after[:, -1:], total)
    keep = within & ((after - best < needed) | (shares >= 1))
    told = (limits <= width) | ((limits >= vocab) & (shares < 1) & (after[:, -1:] >= needed)) | ~(total > 0)
    return keep, told[:, 0]


def _pick_few(weights: Tensor, ids: Tensor, uniform: Tensor) -> Tensor:
    """In the order of ids, as all drawing: the order by weight may change with the last bit of a logit."""
    ids, order = ids.sort(-1)
    sums = weights.gather(1, order).double().cumsum(-1)
    place = torch.searchsorted(sums, uniform * sums[:, -1:], right=True).clamp_(max=ids.shape[1] - 1)
    return ids.gather(1, place)[:, 0]


def _largest(weights: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The `width` largest (B, W), falling, and their ids. The best W are in the W blocks with the largest maxima."""
    blocks = _blocks(weights, _TOP_BLOCK)
    if blocks.shape[1] < 4 * width:
        best, ids = weights.topk(width, -1)
        return best, ids
    where = blocks.amax(-1).topk(width, -1).indices
    best, places = blocks.gather(1, where[:, :, None].expand(-1, -1, _TOP_BLOCK)).flatten(1).topk(width, -1)
    return best, where.gather(1, places // _TOP_BLOCK) * _TOP_BLOCK + places % _TOP_BLOCK


def _blocks(weights: Tensor, size: int) -> Tensor:
    """(B, V) -> (B, V / size, size), filled up with zeros."""
    rest = -weights.shape[1] % size
    return (functional.pad(weights, (0, rest)) if rest else weights).view(len(weights), -1, size)
