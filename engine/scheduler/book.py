"""Which requests live, in which state, with which blocks. Requests enter by add(), each leaves by retire().

The scheduler's ledger: only it calls these, on the main thread. Every change of a status is made here, together with
the blocks, queues, counters and events that go with it."""

from __future__ import annotations

import sys
from bisect import insort
from collections.abc import Callable
from operator import attrgetter

from engine import limits
from engine.errors import EngineBug, RequestRefused
from engine.messages import EngineCoreEvent, EventType, FinishReason
from engine.scheduler.kv_cache import KVCacheManager
from engine.scheduler.output import ScheduledRow
from engine.scheduler.queue import WaitingQueue
from engine.scheduler.request import Request, RequestStatus
from engine.scheduler.stats import Counters

_RUNNING = RequestStatus.RUNNING
_ORDER = attrgetter("order")
_REASONS = [str(reason) for reason in FinishReason]


class RequestBook:
    """Blocks for all known tokens are taken when a request starts, later ones as it grows."""

    def __init__(self, kv_cache: KVCacheManager, max_request_tokens: int, clock: Callable[[], float]) -> None:
        self.kv_cache = kv_cache
        self.counters = Counters()
        self.live: dict[str, Request] = {}
        self.running: list[Request] = []
        """In order. Changed in place only."""
        self.waiting = WaitingQueue()
        self._max_request_tokens = max_request_tokens
        self._clock = clock
        self._dropped: list[str] = []
        self._live_bytes = 0
        """Of the messages that asked for what lives."""

    def add(self, request: Request) -> None:
        """Raises RequestRefused for an id that is live (the first stays untouched), for a prompt that can never fit,
        and when too much lives already."""
        if request.request_id in self.live:
            raise RequestRefused(
                f"request id {request.request_id!r} is already in flight; use another id, or abort the first"
            )
        if self.live and self._live_bytes + request.wire_bytes > limits.MAX_LIVE_REQUEST_BYTES:
            raise RequestRefused(
                f"the engine is full: it holds {len(self.live)} requests of {self._live_bytes} bytes together, "
                f"{limits.MAX_LIVE_REQUEST_BYTES} is the limit; send this one again when some have ended"
            )
        limit, kv_cache = self._max_request_tokens, self.kv_cache
        if request.num_prompt_tokens >= limit:
            raise RequestRefused(
                f"prompt of {request.num_prompt_tokens} tokens can never run: prompt and output share {limit} tokens "
                f"({kv_cache.num_blocks} KV blocks of {kv_cache.block_size})"
            )
        request.length_limit = min(request.length_limit, limit)
        request.max_tokens = request.length_limit - request.num_prompt_tokens
        request.queued_at = self._note(request, EventType.QUEUED)
        self.live[request.request_id] = request
        self._live_bytes += request.wire_bytes
        self.waiting.push(request)

    def start(self, request: Request) -> bool:
        """Gives the first of the waiting its blocks and lets it run. False, nothing done, when there are too few."""
        kv_cache = self.kv_cache
        reads = kv_cache.enable_prefix_caching and request.may_read_prefix_cache
        most = (request.num_tokens - 1) // kv_cache.block_size  # at least the last token must go through the model
        shared = kv_cache.find_cached(request.block_hashes, most) if reads else []
        number = kv_cache.blocks_for(request.num_tokens)
        if kv_cache.cost(shared, number) > kv_cache.num_free:
            return False
        self.waiting.pop(request)
        request.block_ids = kv_cache.take(number - len(shared), shared)
        request.room = number * kv_cache.block_size
        request.num_computed_tokens = len(shared) * kv_cache.block_size
        self._mark_published(request, len(shared))
        again = request.status is RequestStatus.PREEMPTED
        if not again:
            request.num_cached_tokens = request.num_computed_tokens
        if reads:
            self.counters.count_lookup(request.num_tokens, request.num_computed_tokens, again=again)
        request.status = _RUNNING
        request.row = ScheduledRow(request.request_id, 0, 0, [], False)
        insort(self.running, request, key=_ORDER)
        self._note(request, EventType.SCHEDULED)
        return True

    def grow(self, request: Request) -> bool:
        """One more block, at the cost of the last of the order when none is free. False when that is itself."""
        while self.kv_cache.num_free == 0:
            if len(self.running) == 1:
                raise EngineBug(f"the only running request holds all {self.kv_cache.num_blocks} KV blocks")
            if self.preempt_last() is request:
                return False
        block = self.kv_cache.take_one()
        request.row.new_block_ids = [block]
        request.block_ids.append(block)
        request.room += self.kv_cache.block_size
        return True

    def preempt_last(self) -> Request:
        """Takes the blocks of the lowest priority's youngest; it recomputes them when it comes back."""
        request = self.running.pop()
        self._release(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = RequestStatus.PREEMPTED
        self.counters.preemptions += 1
        self._note(request, EventType.PREEMPTED)
        self.waiting.push(request)
        return request

    def publish(self, request: Request) -> None:
        """Lets others share the blocks that are now full and computed."""
        first, size = request.num_published_blocks, self.kv_cache.block_size
        last = request.num_computed_tokens // size
        request.extend_hashes(last, size)
        self.kv_cache.publish(request.block_ids[first:last], request.block_hashes[first:last])
        self._mark_published(request, last)

    def retire(self, request: Request, reason: FinishReason) -> None:
        """It has ended. After it, or several, sweep() must follow."""
        was, request.status = request.status, RequestStatus.FINISHED
        del self.live[request.request_id]
        self._live_bytes -= request.wire_bytes
        self.counters.finished[_REASONS[reason]] += 1
        if was is _RUNNING:
            self._release(request)
        else:
            self.waiting.discard(was)

    def sweep(self) -> None:
        """Takes those that ended out of `running`, all at once."""
        self.running[:] = [request for request in self.running if request.status is _RUNNING]

    def take_dropped(self) -> list[str]:
        """Ids that the executor is to forget, since the last call."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _release(self, request: Request) -> None:
        self.kv_cache.release(request.block_ids)
        self._dropped.append(request.request_id)
        request.block_ids = []
        request.room = 0

    def _mark_published(self, request: Request, num_blocks: int) -> None:
        caching = self.kv_cache.enable_prefix_caching
        request.num_published_blocks = num_blocks
        request.publish_at = (num_blocks + 1) * self.kv_cache.block_size if caching else sys.maxsize

    def _note(self, request: Request, event: EventType) -> float:
        now = self._clock()
        request.events.append(EngineCoreEvent(int(event), now))
        return now
