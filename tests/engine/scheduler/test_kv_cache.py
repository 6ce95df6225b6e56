"""Who gets which block: order of reuse, sharing, eviction, figures by hand."""

from __future__ import annotations

import random

import pytest

from engine.errors import CacheFull, EngineBug
from engine.scheduler.kv_cache import KVCacheManager


def _hash(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_every_block_is_usable_and_all_or_nothing() -> None:
    cache = KVCacheManager(4, 16)
    assert cache.take(4) == [0, 1, 2, 3]
    assert (cache.num_free, cache.num_used, cache.usage) == (0, 4, 1.0)
    with pytest.raises(CacheFull):
        cache.take_one()
    cache.release([3])
    with pytest.raises(CacheFull, match="2 KV blocks needed, 1 of 4 free"):
        cache.take(2)
    assert cache.num_free == 1
    cache.check()


def test_free_blocks_are_reused_newest_first_before_unused_ones() -> None:
    cache = KVCacheManager(10, 16)
    held = cache.take(5)
    cache.release([held[1]])
    cache.release([held[3]])
    assert cache.take(3) == [3, 1, 5]


def test_the_cached_are_taken_last_and_least_recently_used_first() -> None:
    cache = KVCacheManager(6, 16)
    old, new = cache.take(2), cache.take(2)
    cache.publish(old, [_hash(0), _hash(1)])
    cache.publish(new, [_hash(2), _hash(3)])
    cache.release(old)
    cache.release(new)
    assert (cache.num_free, cache.num_cached, cache.usage) == (6, 4, 0.0)
    assert cache.take(2) == [4, 5]
    assert cache.take(1) == [old[1]], "the tail of the chain that was freed first"
    assert cache.find_cached([_hash(0), _hash(1)], 9) == [old[0]]
    assert cache.take(1) == [old[0]]
    assert cache.find_cached([_hash(2), _hash(3)], 9) == new
    assert cache.take(2) == [new[1], new[0]]
    assert cache.num_cached == 0
    cache.check()


def test_a_hit_refreshes_the_block() -> None:
    cache = KVCacheManager(2, 16)
    a, b = cache.take(2)
    cache.publish([a, b], [_hash(0), _hash(1)])
    cache.release([a])
    cache.release([b])
    cache.release(cache.take(0, cache.find_cached([_hash(0)], 1)))
    assert cache.take(1) == [b]


def test_find_stops_at_the_first_gap_and_at_the_limit() -> None:
    cache = KVCacheManager(8, 16)
    blocks = cache.take(4)
    cache.publish(blocks, [_hash(0), _hash(1), _hash(2), _hash(3)])
    assert cache.find_cached([_hash(0), _hash(9), _hash(2)], 9) == [0]
    assert cache.find_cached([_hash(0), _hash(1), _hash(2)], 2) == [0, 1]
    assert cache.find_cached([_hash(9)], 9) == []


def test_shared_blocks_are_counted_once_and_freed_by_the_last() -> None:
    cache = KVCacheManager(8, 16)
    first = cache.take(3)
    cache.publish(first[:2], [_hash(0), _hash(1)])
    shared = cache.find_cached([_hash(0), _hash(1)], 9)
    assert cache.cost(shared, 4) == 2
    second = cache.take(2, shared)
    assert second[:2] == first[:2]
    assert cache.num_used == 5
    cache.release(first)
    assert cache.num_used == 4
    assert cache.cost(shared, 4) == 2, "still used"
    cache.release(second)
    assert cache.num_used == 0
    assert cache.cost(shared, 4) == 4, "free ones have to be taken too"


def test_taking_shared_free_blocks_counts_them_against_the_free() -> None:
    cache = KVCacheManager(4, 16)
    chain = cache.take(3)
    cache.publish(chain, [_hash(0), _hash(1), _hash(2)])
    cache.release(chain)
    with pytest.raises(CacheFull):
        cache.take(2, chain)
    cache.check()
    assert cache.take(1, chain) == [*chain, 3]


def test_the_same_content_computed_twice_is_kept_once() -> None:
    cache = KVCacheManager(4, 16)
    a, b = cache.take(1), cache.take(1)
    cache.publish(a, [_hash(0)])
    cache.publish(b, [_hash(0)])
    assert cache.find_cached([_hash(0)], 1) == a
    cache.release(b)
    assert cache.take(1) == b, "not findable, so it is plainly free"
    cache.check()


def test_reset_only_when_nothing_is_used() -> None:
    cache = KVCacheManager(4, 16)
    blocks = cache.take(2)
    cache.publish(blocks, [_hash(0), _hash(1)])
    assert not cache.reset_prefix_cache()
    assert cache.num_cached == 2
    cache.release(blocks)
    assert cache.reset_prefix_cache()
    assert (cache.num_cached, cache.num_free) == (0, 4)
    assert cache.find_cached([_hash(0)], 1) == []
    cache.check()


def test_without_prefix_caching_nothing_is_ever_found() -> None:
    cache = KVCacheManager(4, 16, enable_prefix_caching=False)
    blocks = cache.take(2)
    cache.publish(blocks, [_hash(0), _hash(1)])
    assert cache.find_cached([_hash(0)], 1) == [] and cache.num_cached == 0


def test_giving_back_twice_is_our_bug() -> None:
    cache = KVCacheManager(4, 16)
    blocks = cache.take(2)
    cache.release(blocks)
    with pytest.raises(EngineBug, match="given back twice"):
        cache.release(blocks)


def test_check_sees_what_it_is_for() -> None:
    for spoil in (
        lambda c: c._free.append(0),
        lambda c: c._block_of.__setitem__(_hash(5), 3),
        lambda c: c._references.__setitem__(0, 0),
    ):
        cache = KVCacheManager(4, 16)
        cache.take(2)
        cache.check()
        spoil(cache)
        with pytest.raises(EngineBug):
            cache.check()


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2)])
def test_blocks_for(tokens: int, blocks: int) -> None:
    assert KVCacheManager(4, 16).blocks_for(tokens) == blocks


@pytest.mark.parametrize("seed", range(20))
def test_random_traffic_loses_no_block(seed: int) -> None:
    rng = random.Random(seed)
    cache = KVCacheManager(rng.randint(2, 30), 16)
    held: list[list[int]] = []
    for _ in range(300):
        chain = [_hash(rng.randint(0, 2) * 100 + depth) for depth in range(rng.randint(1, 5))]
        shared = cache.find_cached(chain, rng.randint(0, 5))
        number = rng.randint(0, 4)
        if rng.random() < 0.6 and cache.cost(shared, len(shared) + number) <= cache.num_free:
            blocks = cache.take(number, shared)
            cache.publish(blocks[: len(chain)], chain[: len(blocks)])
            held.append(blocks)
        elif held:
            cache.release(held.pop(rng.randrange(len(held))))
        cache.check()
    for blocks in held:
        cache.release(blocks)
    assert cache.num_free == cache.num_blocks, f"seed {seed}"
