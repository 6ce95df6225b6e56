"""Which request holds which KV block. Token counts and block hashes enter, block ids leave; no memory is touched here.

Owned by the scheduler; main thread only. A block is in exactly one of four places: used (a reference count), free and
never used, free with nothing worth keeping, free but findable by hash. It lives as long as the engine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from engine.errors import CacheFull, EngineBug


class KVCacheManager:
    """All blocks are usable; none is reserved. Free blocks are taken newest first, then never used ones, and only then
    is the least recently used findable one forgotten and taken."""

    def __init__(self, num_blocks: int, block_size: int, *, enable_prefix_caching: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching
        self._references = [0] * num_blocks
        self._hash_of: list[bytes | None] = [None] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._free: list[int] = []
        self._free_cached: OrderedDict[int, None] = OrderedDict()
        """Least recently used first."""
        self.first_unused = 0
        """Blocks from this id on were never handed out; they are in their order."""

    # ------------------------------------------------------------ figures

    @property
    def num_free(self) -> int:
        """Findable free blocks count: they can be had."""
        return len(self._free) + len(self._free_cached) + self.num_blocks - self.first_unused

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_free

    @property
    def num_cached(self) -> int:
        """Findable by hash, used or free."""
        return len(self._block_of)

    @property
    def usage(self) -> float:
        """0..1; 0 when no request holds a block."""
        return self.num_used / self.num_blocks

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    # ------------------------------------------------------------ taking and giving back

    def find_cached(self, hashes: Sequence[bytes], max_blocks: int) -> list[int]:
        """The longest findable head of the chain, `max_blocks` at most. Takes nothing."""
        found: list[int] = []
        if not self._block_of:
            return found
        for block_hash in hashes[:max_blocks]:
            block = self._block_of.get(block_hash)
            if block is None:
                break
            found.append(block)
        return found

    def cost(self, shared: Sequence[int], num_blocks: int) -> int:
        """Free blocks that go when a request takes `shared` and fills up to `num_blocks`."""
        references = self._references
        return num_blocks - sum(1 for block in shared if references[block])

    def take(self, number: int, shared: Sequence[int] = ()) -> list[int]:
        """`shared` (from find_cached) and `number` blocks of its own. Raises CacheFull, with nothing taken."""
        if self.cost(shared, len(shared) + number) > self.num_free:
            raise CacheFull(f"{number} KV blocks needed, {self.num_free} of {self.num_blocks} free")
        for block in shared:
            if not self._references[block]:
                del self._free_cached[block]
            self._references[block] += 1
        return [*shared, *(self.take_one() for _ in range(number))]

    def release(self, blocks: Sequence[int]) -> None:
        """A request's blocks in its order. The tail goes first, so a chain is forgotten from its end."""
        references, hash_of = self._references, self._hash_of
        for block in reversed(blocks):
            references[block] -= 1
            if references[block] > 0:
                continue
            if references[block] < 0:
                raise EngineBug(f"KV block {block} was given back twice")
            if hash_of[block] is None:
                self._free.append(block)
            else:
                self._free_cached[block] = None

    def take_one(self) -> int:
        """Raises CacheFull."""
        if self._free:
            block = self._free.pop()
        elif self.first_unused < self.num_blocks:
            block = self.first_unused
            self.first_unused += 1
        elif not self._free_cached:
            raise CacheFull(f"none of the {self.num_blocks} KV blocks is free")
        else:
            block, _ = self._free_cached.popitem(last=False)
            self._forget(block)
        self._references[block] = 1
        return block

    # ------------------------------------------------------------ prefix cache

    def publish(self, blocks: Sequence[int], hashes: Sequence[bytes]) -> None:
        """These full blocks are computed: others may share them. A hash that is already known keeps its block."""
        if not self.enable_prefix_caching:
            return
        for block, block_hash in zip(blocks, hashes, strict=True):
            if block_hash not in self._block_of and self._hash_of[block] is None:
                self._block_of[block_hash] = block
                self._hash_of[block] = block_hash

    def reset_prefix_cache(self) -> bool:
        """Forgets every hash. False, and nothing done, while any block is used."""
        if self.num_used:
            return False
        for block in self._block_of.values():
            self._hash_of[block] = None
        self._block_of.clear()
        self._free.extend(self._free_cached)
        self._free_cached.clear()
        return True

    def _forget(self, block: int) -> None:
        block_hash = self._hash_of[block]
        if block_hash is not None:
            del self._block_of[block_hash]
            self._hash_of[block] = None

    def check(self) -> None:
        """Every block in exactly one place, every hash in both directions. O(blocks); raises EngineBug."""
        used = [block for block, count in enumerate(self._references) if count]
        places = used + self._free + list(self._free_cached) + list(range(self.first_unused, self.num_blocks))
        if sorted(places) != list(range(self.num_blocks)):
            raise EngineBug("a KV block is in two places or in none")
        if {block: h for block, h in enumerate(self._hash_of) if h} != {b: h for h, b in self._block_of.items()}:
            raise EngineBug("the prefix cache's two directions disagree")
        if any(self._hash_of[block] is None for block in self._free_cached) or any(
            self._hash_of[block] is not None for block in self._free
        ):
            raise EngineBug("a free KV block is in the wrong place")
