"""What one client may leave in the input queue, and when it is read on."""

from __future__ import annotations

from queue import SimpleQueue

from engine import limits
from engine.intake import Intake
from engine.queues import InputQueue, Wakeup

FLOODER, OTHER = 0, 1
MUCH = [bytes(limits.MAX_QUEUED_BYTES)]


def receive(intake: Intake, queue: InputQueue, client: int, frames: list[bytes]) -> None:
    intake.note(client, frames)
    queue.put(Wakeup())


def test_only_who_has_too_much_in_the_queue_is_not_read() -> None:
    queue: InputQueue = SimpleQueue()
    intake = Intake(queue)
    receive(intake, queue, FLOODER, MUCH)
    assert not intake.may_read(FLOODER) and intake.may_read(OTHER)
    queue.get()
    assert intake.may_read(FLOODER)


def test_a_client_that_sends_all_the_time_does_not_keep_another_from_being_read_on() -> None:
    """The queue was empty before its message, and is not when somebody looks."""
    queue: InputQueue = SimpleQueue()
    intake = Intake(queue)
    receive(intake, queue, FLOODER, MUCH)
    queue.get()
    receive(intake, queue, OTHER, [b"x"])
    assert not queue.empty() and intake.may_read(FLOODER)


def test_small_messages_cost_what_they_are_as_objects() -> None:
    queue: InputQueue = SimpleQueue()
    intake = Intake(queue)
    for _ in range(limits.MAX_QUEUED_BYTES // 1024 + 1):
        receive(intake, queue, FLOODER, [b""])
    assert not intake.may_read(FLOODER)
