"""Waiting requests in the order they may start. Enter by add or preemption, leave by pop or, without being touched, by
ending: a finished request stays in the heap as a hole until it surfaces or holes outnumber the rest.

Owned by the scheduler; main thread only."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from engine.scheduler.request import Request, RequestStatus

_Entry = tuple[int, float, int, int, Request]
"""priority, arrival, seq, order of entry, the request"""
_MIN_HOLES = 64


class RequestQueue:
    """A heap of requests of one status, by (priority, arrival, seq). push and pop are O(log n), discard O(1)."""

    def __init__(self, status: RequestStatus) -> None:
        self._status = status
        self._heap: list[_Entry] = []
        self._ties = count()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, request: Request) -> None:
        heappush(self._heap, (*request.order, next(self._ties), request))
        self._size += 1

    def peek(self) -> Request | None:
        heap = self._heap
        while heap and heap[0][-1].status is not self._status:
            heappop(heap)
        return heap[0][-1] if heap else None

    def pop(self) -> Request:
        """Takes out what peek() shows. Raises IndexError when empty."""
        if self.peek() is None:
            raise IndexError("pop from an empty queue")
        self._size -= 1
        return heappop(self._heap)[-1]

    def discard(self, number: int = 1) -> None:
        """So many requests that are here have just changed their status: forget them."""
        self._size -= number
        holes = len(self._heap) - self._size
        if holes > _MIN_HOLES and holes > self._size:
            self._heap = [entry for entry in self._heap if entry[-1].status is self._status]
            heapify(self._heap)

    def first(self, limit: int) -> list[Request]:
        """In order; O(k log k) for k results and the holes among them."""
        found: list[Request] = []
        heap = self._heap
        frontier = [(heap[0], 0)] if heap else []
        while frontier and len(found) < limit:
            entry, place = heappop(frontier)
            if entry[-1].status is self._status:
                found.append(entry[-1])
            for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
                heappush(frontier, (heap[child], child))
        return found


class WaitingQueue:
    """New and preempted requests. Those that had begun go ahead of the new ones of their priority."""

    def __init__(self) -> None:
        self.new = RequestQueue(RequestStatus.WAITING)
        self.preempted = RequestQueue(RequestStatus.PREEMPTED)

    def __len__(self) -> int:
        return len(self.new) + len(self.preempted)

    def push(self, request: Request) -> None:
        self._of(request.status).push(request)

    def peek(self, *, begun_only: bool = False) -> Request | None:
        begun = self.preempted.peek()
        if begun_only:
            return begun
        fresh = self.new.peek()
        if begun is None or fresh is None:
            return begun or fresh
        return begun if begun.priority <= fresh.priority else fresh

    def pop(self, request: Request) -> None:
        """Takes out what peek() has just returned."""
        self._of(request.status).pop()

    def discard(self, status: RequestStatus, number: int = 1) -> None:
        """So many requests that had this status have ended."""
        self._of(status).discard(number)

    def first(self, limit: int) -> list[Request]:
        """In the order they may start."""
        both = self.preempted.first(limit) + self.new.first(limit)
        both.sort(key=lambda request: (request.priority, request.status is RequestStatus.WAITING, request.order))
        return both[:limit]

    def _of(self, status: RequestStatus) -> RequestQueue:
        return self.preempted if status is RequestStatus.PREEMPTED else self.new
