"""Which blocks get memory ahead, and that they have it afterwards, and no others."""

from __future__ import annotations

import math
import mmap
import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.executor.pages import MOST_AHEAD, Pages
from engine.model.attention import KVCache
from engine.model.decoder import rope_table
from engine.model.inputs import Row
from engine.model.native.build import levels
from engine.model.native.decoder import NativeDecoder
from engine.scheduler.kv_cache import KVCacheManager
from tests.support.native import built, random_weights, small_config

RELEASE = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])


def test_each_row_has_its_next_block_within_as_many_steps_as_a_block_has_tokens() -> None:
    pages = Pages(1000, 16)
    steps = [pages.next(100, 32) for _ in range(20)]
    assert steps[:2] == [range(100, 102), range(102, 104)]
    assert [len(step) for step in steps] == [2] * 16 + [0] * 4
    assert pages.next(132, 32) == range(132, 134)


def test_a_single_row_asks_for_one_block_and_then_for_nothing() -> None:
    pages = Pages(1000, 16)
    assert [len(pages.next(7, 1)) for _ in range(4)] == [1, 0, 0, 0]
    assert pages.next(8, 1) == range(8, 9)


def test_no_more_are_held_than_some_and_none_that_there_are_not() -> None:
    pages = Pages(1000, 16)
    assert sum(len(pages.next(0, 500)) for _ in range(100)) == MOST_AHEAD
    assert [len(Pages(102, 16).next(first, 64)) for first in (100, 101, 102)] == [2, 1, 0]
    assert list(pages.next(0, 0)) == []


def test_what_was_handed_out_meanwhile_is_passed_by() -> None:
    pages = Pages(1000, 16)
    assert pages.next(0, 16) == range(1)
    assert pages.next(50, 16) == range(50, 51)
    assert pages.next(50, 16) == range(51, 52)


def test_blocks_that_were_never_used_are_handed_out_in_their_order() -> None:
    manager = KVCacheManager(8, 16)
    assert (manager.take(3), manager.first_unused) == ([0, 1, 2], 3)
    manager.release([0, 1, 2])
    assert manager.first_unused == 3
    manager.take(3)
    assert (manager.take(2), manager.first_unused) == ([3, 4], 5)


@pytest.mark.skipif(RELEASE < (5, 14), reason="Linux before 5.14 gives no memory ahead")
def test_a_step_gives_upcoming_blocks_memory_and_leaves_what_is_in_them() -> None:
    config = small_config(num_layers=2, num_kv_heads=2, num_heads=2, head_dim=64)
    cache = KVCache(config, 8, 16, torch.float32, torch.device("cpu"))
    cache.num_blocks = 4000
    cache.keys, cache.values = (untouched(2, 4001, 2, 16, 64) for _ in range(2))
    decoder = NativeDecoder(built(levels()[0]), config, rope_table(config, 64), torch.float32, 2, 16)
    decoder.take(random_weights(config, 1))
    held = cache.keys[:, 500:502].fill_(7).clone()
    cache.upcoming = range(501, 700)
    decoder.run([Row([1, 2, 3], 0, 3, np.array([3]))], cache)
    for tensor in (cache.keys, cache.values):
        for layer in tensor:
            assert all(is_present(layer[block]) for block in range(501, 700))
            assert not any(is_present(layer[block]) for block in range(2000, 2100))
    assert torch.equal(cache.keys[:, 500:502], held)
    assert len(cache.upcoming) == 0
    decoder.close()


def untouched(*size: int) -> Tensor:
    """Float32; malloc might give memory that somebody had before."""
    memory = mmap.mmap(-1, 4 * math.prod(size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=torch.float32).view(size)


def is_present(block: Tensor) -> bool:
    """Whether all pages of it have memory, by the kernel's word (proc_pid_pagemap(5))."""
    first, end = block.data_ptr() // mmap.PAGESIZE, (block.data_ptr() + block.nbytes - 1) // mmap.PAGESIZE + 1
    with Path("/proc/self/pagemap").open("rb") as file:
        file.seek(8 * first)
        entries = np.frombuffer(file.read(8 * (end - first)), np.uint64)
    return bool((entries >> np.uint64(63)).all())
