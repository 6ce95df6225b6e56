"""Attention over the paged KV cache, read only through the rows that StepInputs names.

Enters: q, k, v of the packed tokens, one layer's cache. Leaves: the result per packed token. Owns the cache tensor,
which begins uninitialised: pages are touched when first written. A kernel that walks the blocks itself can replace
`attend` alone."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.inputs import CacheShape, Group, LongRow, StepInputs


class KVCache:
    """keys, values: per layer (num_blocks + 1, kv_heads, block_size, head_dim). The last block is the padding block,
    zeros, which no request owns."""

    def __init__(
        self, config: ModelConfig, num_blocks: int, block_size: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        size = (config.num_layers, num_blocks + 1, config.num_kv_heads, block_size, config.head_dim)
        self.keys = torch.empty(size, dtype=dtype, device=device)
        self.values = torch.empty(size, dtype=dtype, device=device)
        self.num_blocks = num_blocks
        self.shape = CacheShape(config.num_kv_heads, block_size, num_blocks)
        self.upcoming = range(0)
        """Blocks that nobody holds yet and that the next step may give memory, so that a later one need not."""
        self.clear_padding()
        flat = (config.num_layers, -1, config.head_dim)
        self.layers = list(zip(self.keys.view(flat).unbind(0), self.values.view(flat).unbind(0), strict=True))
        """Per layer (keys, values), each (rows, head_dim)."""

    def clear_padding(self) -> None:
        self.keys[:, -1].zero_()
        self.values[:, -1].zero_()


def attend(q: Tensor, k: Tensor, v: Tensor, cache: tuple[Tensor, Tensor], inputs: StepInputs) -> Tensor:
    """q (T, heads, D)   k, v (T, kv_heads, D)   returns (T, heads * D).   Writes k and v into the cache first."""
    tokens, heads, dim = q.shape
    keys, values = cache
    k, v = k.to(keys.dtype), v.to(values.dtype)
    keys.index_copy_(0, inputs.write, k.transpose(0, 1).reshape(-1, dim))
    values.index_copy_(0, inputs.write, v.transpose(0, 1).reshape(-1, dim))
    if inputs.one_group:
        return _attend_group(q, k.shape[1], cache, inputs.groups[0])
    out = q.new_empty(tokens, heads * dim)
    for group in inputs.groups:
        result = _attend_group(q.index_select(0, group.queries), k.shape[1], cache, group)
        out.index_copy_(0, group.tokens, result.index_select(0, group.scatter))
    for row in inputs.long_rows:
        out[row.first : row.first + row.count] = _attend_long(q, k, v, cache, row)
    return out


def _attend_group(q: Tensor, kv_heads: int, cache: tuple[Tensor, Tensor], group: Group) -> Tensor:
    """q (R * N, heads, D) -> (R * N, heads * D). The heads that share a KV head are query rows of one product."""
    rows, width, length = group.rows, group.width, group.length
    heads, dim = q.shape[1:]
    share = heads // kv_heads
    keys = cache[0].index_select(0, group.gather).view(kv_heads * rows, length, dim).to(q.dtype)
    values = cache[1].index_select(0, group.gather).view(kv_heads * rows, length, dim).to(q.dtype)
    folded = q.view(rows, width, kv_heads, share, dim).permute(2, 0, 3, 1, 4).reshape(-1, share * width, dim)
    scores = torch.bmm(folded * (1 / math.sqrt(dim)), keys.transpose(1, 2))
    scores = scores.view(kv_heads, rows, share, width, length).add_(group.bias.view(1, rows, 1, width, length))
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(values.dtype)
    out = torch.bmm(weights.view(kv_heads * rows, share * width, length), values)
    return out.view(kv_heads, rows, share, width, dim).permute(1, 3, 0, 2, 4).reshape(rows * width, heads * dim)


def _attend_long(q: Tensor, k: Tensor, v: Tensor, cache: tuple[Tensor, Tensor], row: LongRow) -> Tensor:
    """One row of many tokens: its own keys and values as they are, or all of its context through its blocks."""
    heads, dim = q.shape[1:]
    kv_heads = k.shape[1]
    mine = slice(row.first, row.first + row.count)
    query = q[mine].transpose(0, 1)[None]
    if row.length == row.count:
        key, value, mask = k[mine].transpose(0, 1)[None], v[mine].transpose(0, 1)[None], None
    else:
        key = cache[0].index_select(0, row.gather).view(1, kv_heads, row.length, dim)
        value = cache[1].index_select(0, row.gather).view(1, kv_heads, row.length, dim)
        before = row.length - row.count
        mask = torch.ones(row.count, row.length, dtype=torch.bool, device=q.device).tril_(before)
    out = functional.scaled_dot_product_attention(
        query, key.to(q.dtype), value.to(q.dtype), attn_mask=mask, is_causal=mask is None, enable_gqa=heads != kv_heads
    )
    return out[0].transpose(0, 1).reshape(row.count, heads * dim)
