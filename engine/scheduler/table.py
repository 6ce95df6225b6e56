"""The request table: what the scheduler holds, one row a request, and why a waiting one waits. Never a token.

Pure: reads the scheduler's parts on the main thread, returns a struct that nobody changes afterwards."""

from __future__ import annotations

from engine.reports import RequestInfo, RequestTable
from engine.scheduler.kv_cache import KVCacheManager
from engine.scheduler.queue import WaitingQueue
from engine.scheduler.request import Request, RequestStatus

_LOOKED_UP = 16
"""So many of the waiting have their cached blocks counted; the others show what they need without the cache."""
_STATES = {RequestStatus.WAITING: "waiting", RequestStatus.RUNNING: "running", RequestStatus.PREEMPTED: "preempted"}


class TableMaker:
    """Holds the scheduler's own queues and cache; makes tables of them."""

    def __init__(
        self, running: list[Request], waiting: WaitingQueue, kv_cache: KVCacheManager, max_num_seqs: int
    ) -> None:
        self._running = running
        self._waiting = waiting
        self._kv_cache = kv_cache
        self._max_num_seqs = max_num_seqs

    def table(self, limit: int, now: float, *, running_paused: bool, waiting_paused: bool) -> RequestTable:
        """Running ones first, then the others in the order they may start. `now` is monotonic, s."""
        items = [self._running_row(request, now, running_paused) for request in self._running[:limit]]
        for place, request in enumerate(self._waiting.first(limit - len(items)), start=1):
            paused = running_paused or (waiting_paused and request.status is RequestStatus.WAITING)
            items.append(self._waiting_row(request, now, place, paused))
        return RequestTable(items=items, total=len(self._running) + len(self._waiting))

    def _running_row(self, request: Request, now: float, paused: bool) -> RequestInfo:
        needed = self._kv_cache.blocks_for(request.num_tokens) - len(request.block_ids)
        return _paused_row(request, now, max(0, needed)) if paused else _row(request, now, max(0, needed))

    def _waiting_row(self, request: Request, now: float, place: int, paused: bool) -> RequestInfo:
        kv_cache = self._kv_cache
        needed = kv_cache.blocks_for(request.num_tokens)
        if place <= _LOOKED_UP and request.may_read_prefix_cache:
            shared = kv_cache.find_cached(request.block_hashes, (request.num_tokens - 1) // kv_cache.block_size)
            needed = kv_cache.cost(shared, needed)
        if paused:
            return _paused_row(request, now, needed)
        turn = f"position {place}"
        if (running := len(self._running)) >= self._max_num_seqs:
            return _row(request, now, needed, f"{turn}; {running} of {self._max_num_seqs} sequences run", "sequences")
        if needed > kv_cache.num_free:
            return _row(request, now, needed, f"{turn}; needs {needed} blocks, {kv_cache.num_free} free", "blocks")
        return _row(request, now, needed, turn)


def _paused_row(request: Request, now: float, blocks_needed: int) -> RequestInfo:
    return _row(request, now, blocks_needed, "paused", "paused")


def _row(request: Request, now: float, blocks_needed: int, waits_for: str = "", limit: str = "") -> RequestInfo:
    return RequestInfo(
        id=request.request_id,
        external_id=request.external_req_id,
        state=_STATES[request.status],
        age_s=max(0.0, now - request.queued_at),
        prompt_tokens=request.num_prompt_tokens,
        output_tokens=request.num_output_tokens,
        max_tokens=request.max_tokens,
        computed_tokens=request.num_computed_tokens,
        cached_tokens=request.num_cached_tokens,
        blocks=len(request.block_ids),
        blocks_needed=blocks_needed,
        preemptions=request.num_preemptions,
        client=request.client_index,
        priority=request.priority,
        waits_for=waits_for,
        limit=limit,
    )
