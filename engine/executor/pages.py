"""Which KV blocks get memory before a step writes them. Owned by the worker; main thread only.

The cache's pages come when they are first written, so that an engine holds what it has used. Requests that began
together need their next block in the same step, and some thousand page faults make that step 3 ms longer than those
before it. Blocks that were never used are handed out in their order, and each row needs one every block_size steps: so
many of the next ones get their pages in each step."""

from __future__ import annotations

MOST_AHEAD = 32
"""Blocks. What nobody uses in the end is held for nothing."""


class Pages:
    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._num_blocks = num_blocks
        self._block_size = block_size
        self._ready = 0
        """Blocks below this id have their pages, or had their first writer."""

    def next(self, first_unused: int, rows: int) -> range:
        """Blocks that shall get their pages in this step. first_unused: the first that was never handed out. rows: of
        this step."""
        begin = max(self._ready, first_unused)
        most = min(first_unused + min(rows, MOST_AHEAD), self._num_blocks)
        self._ready = max(begin, min(most, begin + -(-rows // self._block_size)))
        return range(begin, self._ready)
