"""Packing: every token written and read where it should be, padding bounded, all rows in some group."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.model.inputs import FLASH_MIN_TOKENS, CacheShape, InputBuilder, Row, group_rows

HEADS, SIZE, PADDING = 2, 4, 99
BUILDER = InputBuilder(CacheShape(HEADS, SIZE, PADDING), torch.device("cpu"), torch.float32)


def cache_row(block: int, head: int, offset: int) -> int:
    return (block * HEADS + head) * SIZE + offset


def expected(blocks: list[int], positions: range) -> list[list[int]]:
    """Per head, the cache row of each position."""
    return [[cache_row(blocks[p // SIZE], head, p % SIZE) for p in positions] for head in range(HEADS)]


def test_rows_are_packed_in_order() -> None:
    rows = [Row([7], 5, 1, np.array([3, 8])), Row([1, 2, 3], 2, 3, np.array([6, 4]), kept=2)]
    inputs = BUILDER.build(rows)
    assert inputs.ids.tolist() == [7, 1, 2, 3]
    assert inputs.positions.tolist() == [5, 2, 3, 4]
    assert inputs.kept is not None
    assert inputs.kept.tolist() == [0, 2, 3]
    first, second = expected([3, 8], range(5, 6)), expected([6, 4], range(2, 5))
    assert inputs.write.view(HEADS, -1).tolist() == [a + b for a, b in zip(first, second, strict=True)]


def test_a_group_reads_its_own_rows_and_padding() -> None:
    rows = [Row([7], 5, 1, np.array([3, 8])), Row([9], 2, 1, np.array([6, 4]))]
    inputs = BUILDER.build(rows)
    (group,) = inputs.groups
    assert inputs.one_group
    gather = group.gather.view(HEADS, 2, group.length)
    assert group.length == 6
    assert gather[:, 0].tolist() == expected([3, 8], range(6))
    assert gather[:, 1, :3].tolist() == expected([6, 4], range(3))
    assert gather[:, 1, 3:].tolist() == [[cache_row(PADDING, head, 0)] * 3 for head in range(HEADS)]
    assert (group.bias[1, 0] == 0).tolist() == [True] * 3 + [False] * 3


def test_several_tokens_of_a_row_see_only_what_is_before_them() -> None:
    (group,) = BUILDER.build([Row([1, 2, 3], 1, 3, np.array([0]))]).groups
    assert (group.bias[0] == 0).tolist() == [[True, True, False, False], [True, True, True, False], [True] * 4]


def test_long_chunks_go_alone() -> None:
    count = FLASH_MIN_TOKENS
    inputs = BUILDER.build([Row([5], 0, 1, np.array([1])), Row([1] * count, 4, count, np.arange(30))])
    (long,) = inputs.long_rows
    assert (long.first, long.count, long.length) == (1, count, count + 4)
    assert long.gather.view(HEADS, -1).tolist() == expected(list(range(30)), range(count + 4))
    assert not inputs.one_group


@pytest.mark.parametrize("seed", range(20))
def test_groups_hold_each_row_once_and_waste_little(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = np.where(rng.random(64) < 0.5, 1, rng.integers(1, 64, 64))
    lengths = counts + rng.integers(0, 8000, 64)
    groups = group_rows(counts, lengths, np.arange(64))
    assert sorted(np.concatenate(groups).tolist()) == list(range(64))
    for members in groups:
        padded = len(members) * counts[members].max() * lengths[members].max()
        real = (counts[members] * lengths[members]).sum()
        assert padded <= 2 * real or padded - real <= 1 << 14
        assert len({counts[member] == 1 for member in members}) == 1
    assert len(groups) < 24
