"""The order of the waiting, and what a storm of aborts leaves behind."""

from __future__ import annotations

import random

from engine.scheduler.queue import RequestQueue, WaitingQueue
from engine.scheduler.request import Request, RequestStatus
from tests.engine.scheduler.rig import make


def _pop_all(queue: WaitingQueue) -> list[str]:
    ids = []
    while (request := queue.peek()) is not None:
        queue.pop(request)
        request.status = RequestStatus.RUNNING
        ids.append(request.request_id)
    return ids


def _preempted(request: Request) -> Request:
    request.status = RequestStatus.PREEMPTED
    request.num_preemptions = 1
    return request


def test_priority_then_arrival_then_admission() -> None:
    queue = WaitingQueue()
    for request in (
        make("late", [3], arrival=9.0),
        make("second", [3], arrival=1.0, seq=2),
        make("first", [3], arrival=1.0, seq=1),
        make("urgent", [3], arrival=99.0, priority=-1),
        make("patient", [3], arrival=0.0, priority=5),
    ):
        queue.push(request)
    expected = ["urgent", "first", "second", "late", "patient"]
    assert [request.request_id for request in queue.first(10)] == expected
    assert [request.request_id for request in queue.first(2)] == expected[:2]
    assert _pop_all(queue) == expected
    assert len(queue) == 0


def test_preempted_go_ahead_of_those_of_their_priority_only() -> None:
    queue = WaitingQueue()
    queue.push(make("new", [3], arrival=1.0))
    queue.push(_preempted(make("begun", [3], arrival=2.0)))
    queue.push(_preempted(make("begun low", [3], priority=1, arrival=0.0)))
    queue.push(make("new urgent", [3], priority=-1, arrival=3.0))
    begun = queue.peek(begun_only=True)
    assert begun is not None and begun.request_id == "begun"
    expected = ["new urgent", "begun", "new", "begun low"]
    assert [request.request_id for request in queue.first(10)] == expected
    assert _pop_all(queue) == expected


def test_equal_in_everything_keeps_the_order_of_entry() -> None:
    queue = WaitingQueue()
    for number in range(50):
        queue.push(make(str(number), [3]))
    assert _pop_all(queue) == [str(number) for number in range(50)]


def test_a_storm_of_aborts_leaves_no_holes() -> None:
    queue = RequestQueue(RequestStatus.WAITING)
    requests = [make(str(number), [3], arrival=float(number)) for number in range(10_000)]
    for request in requests:
        queue.push(request)
    rng = random.Random(1)
    rng.shuffle(requests)
    for request in requests[3:]:
        request.status = RequestStatus.FINISHED
        queue.discard()
    assert len(queue) == 3
    assert len(queue._heap) < 200
    left = sorted(requests[:3], key=lambda request: request.arrival_time)
    assert queue.first(10) == left
    assert [queue.pop() for _ in range(3)] == left
    assert queue.peek() is None
