"""One step's rows, packed: which tokens, at which positions, written to and read from which cache rows.

Enters: rows with their token and block ids. Leaves: StepInputs, index tensors on the device, built with numpy because
its small operations cost a fifth of torch's. Shared by all layers of the step, then dropped.

A cache row is head_dim numbers of one KV head at one token. Row of (block, head, offset) in a layer's cache:
(block * kv_heads + head) * block_size + offset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

FLASH_MIN_TOKENS = 64
"""A prefill chunk this long has its attention computed alone; shorter ones are padded together."""
_WASTE_FACTOR = 2.0
_WASTE_FREE = 1 << 14
"""Padding up to so many scores in a group costs less than one more group."""


@dataclass(slots=True)
class Row:
    """Tokens [start, start + count) of one request. `blocks` (numpy int64) hold at least start + count tokens. The
    hidden states of its last `kept` tokens are wanted; None: of all."""

    tokens: Sequence[int]
    start: int
    count: int
    blocks: np.ndarray
    kept: int | None = None

    @property
    def num_kept(self) -> int:
        return self.count if self.kept is None else self.kept


@dataclass(slots=True)
class Group:
    """Rows whose attention is one batched product. R rows of at most N new tokens over at most L tokens in all.
    queries (R * N,) packed token of each query, padding repeats one   gather (kv_heads * R * L,) cache rows
    bias (R, N, L) 0 or -inf   scatter (tokens,) where each packed token's result lies in (R * N)   tokens (tokens,)
    """

    rows: int
    width: int
    length: int
    queries: Tensor
    gather: Tensor
    bias: Tensor
    tokens: Tensor
    scatter: Tensor


@dataclass(slots=True)
class LongRow:
    """One row alone: packed tokens [first, first + count), over `length` tokens; gather (kv_heads * length,)."""

    first: int
    count: int
    length: int
    gather: Tensor


@dataclass(slots=True)
class StepInputs:
    """T packed tokens.   ids, positions (T,)   write (kv_heads * T,) cache rows   kept (K,) those whose hidden states
    are wanted; None: all"""

    ids: Tensor
    positions: Tensor
    write: Tensor
    kept: Tensor | None
    groups: list[Group] = field(default_factory=list)
    long_rows: list[LongRow] = field(default_factory=list)
    one_group: bool = False
    """All tokens are in the one group, one a row, in order: nothing need be moved."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    kv_heads: int
    block_size: int
    padding_block: int
    """A block of zeros that no request owns: what padding reads, since 0 weight times NaN is NaN."""


class InputBuilder:
    def __init__(self, shape: CacheShape, device: torch.device, dtype: torch.dtype) -> None:
        self.shape = self._shape = shape
        self._device = device
        self._dtype = dtype
        self._heads = np.arange(shape.kv_heads, dtype=np.int64)[:, None] * shape.block_size

    def build(self, rows: Sequence[Row]) -> StepInputs:
        counts = np.array([row.count for row in rows], np.int64)
        starts = np.array([row.start for row in rows], np.int64)
        firsts = np.cumsum(counts) - counts
        ids = np.array([token for row in rows for token in row.tokens], np.int64)
        positions = np.repeat(starts - firsts, counts) + np.arange(len(ids))
        slots = np.concatenate([self._slots(row.blocks, row.start, row.start + row.count) for row in rows])
        kept = self._kept(rows, firsts + counts)
        inputs = StepInputs(self._put(ids), self._put(positions), self._put(self._per_head(slots)), kept)
        long = counts >= FLASH_MIN_TOKENS
        for index in np.flatnonzero(long).tolist():
            inputs.long_rows.append(self._long(rows[index], int(firsts[index])))
        for members in group_rows(counts, starts + counts, np.flatnonzero(~long)):
            inputs.groups.append(self._group(rows, members, firsts, counts, starts))
        inputs.one_group = len(inputs.groups) == 1 and len(ids) == len(rows) and not inputs.long_rows
        return inputs

    def _kept(self, rows: Sequence[Row], ends: np.ndarray) -> Tensor | None:
        numbers = np.array([row.num_kept for row in rows], np.int64)
        total = int(numbers.sum())
        if total == ends[-1]:
            return None
        firsts = np.cumsum(numbers) - numbers
        return self._put(np.repeat(ends - numbers - firsts, numbers) + np.arange(total))

    def _slots(self, blocks: np.ndarray, start: int, end: int) -> np.ndarray:
        """(end - start,) cache rows of head 0."""
        size = self._shape.block_size
        at = np.arange(start, end)
        slots: np.ndarray = blocks[at // size] * (self._shape.kv_heads * size) + at % size
        return slots

    def _per_head(self, slots: np.ndarray) -> np.ndarray:
        rows: np.ndarray = self._heads + slots.reshape(1, -1)
        return rows.reshape(-1)

    def _long(self, row: Row, first: int) -> LongRow:
        length = row.start + row.count
        return LongRow(first, row.count, length, self._put(self._per_head(self._slots(row.blocks, 0, length))))

    def _group(
        self, rows: Sequence[Row], members: np.ndarray, firsts: np.ndarray, counts: np.ndarray, starts: np.ndarray
    ) -> Group:
        counts, starts, firsts = counts[members], starts[members], firsts[members]
        width, length = int(counts.max()), int((starts + counts).max())
        queries = firsts[:, None] + np.minimum(np.arange(width), counts[:, None] - 1)
        query_positions = starts[:, None] + np.minimum(np.arange(width), counts[:, None] - 1)
        hidden = np.arange(length)[None, None] > query_positions[:, :, None]
        real = np.arange(width) < counts[:, None]
        return Group(
            len(members),
            width,
            length,
            queries=self._put(queries.reshape(-1)),
            gather=self._put(self._per_head(self._context(rows, members, starts + counts, length))),
            bias=self._bias(hidden),
            tokens=self._put(queries[real]),
            scatter=self._put(np.flatnonzero(real.reshape(-1))),
        )

    def _context(self, rows: Sequence[Row], members: np.ndarray, lengths: np.ndarray, length: int) -> np.ndarray:
        """(R, L) cache rows of head 0; past a row's own length, the padding block."""
        size, heads = self._shape.block_size, self._shape.kv_heads
        num_blocks = -(-length // size)
        table = np.full((len(members), num_blocks), self._shape.padding_block, np.int64)
        for index, member in enumerate(members):
            blocks = rows[member].blocks[:num_blocks]
            table[index, : len(blocks)] = blocks
        slots = (table[:, :, None] * (heads * size) + np.arange(size)).reshape(len(members), -1)[:, :length]
        padding = self._shape.padding_block * heads * size
        found: np.ndarray = np.where(np.arange(length) < lengths[:, None], slots, padding)
        return found

    def _bias(self, hidden: np.ndarray) -> Tensor:
        mask = torch.from_numpy(hidden).to(self._device)
        return torch.zeros(mask.shape, dtype=self._dtype, device=self._device).masked_fill_(mask, -torch.inf)

    def _put(self, values: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        return tensor if self._device.type == "cpu" else tensor.to(self._device, non_blocking=True)


def group_rows(counts: np.ndarray, lengths: np.ndarray, members: np.ndarray) -> list[np.ndarray]:
    """Rows of like width and length together, so that padding at most about doubles the work. One-token rows apart."""
    if len(members) == 0:
        return []
    order = members[np.lexsort((lengths[members], counts[members]))]
    groups: list[list[int]] = []
    longest = work = 0
    for index in order.tolist():
        count, length = int(counts[index]), int(lengths[index])
        group = groups[-1] if groups else []
        padded = (len(group) + 1) * count * max(longest, length)
        real = work + count * length
        alike = bool(group) and (counts[group[0]] == 1) == (count == 1)
        if alike and (padded <= _WASTE_FACTOR * real or padded - real <= _WASTE_FREE):
            group.append(index)
            longest, work = max(longest, length), real
        else:
            groups.append([index])
            longest, work = length, count * length
    # In packed order, so that a step of decodes alone needs no move of its rows.
    return [np.sort(np.array(group)) for group in groups]
