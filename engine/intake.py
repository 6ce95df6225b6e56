"""How much of each client's messages waits in input_queue: who has too much there is not read on until it was empty.

What is not read stays with its sender, since the sockets have a high-water mark. The loop empties the queue once each
step, so an abort behind a flood waits for one step at most, and the other clients wait for nothing. Used by engine-in
alone."""

from __future__ import annotations

from collections.abc import Sequence

from engine import limits
from engine.queues import InputQueue

MESSAGE_OVERHEAD_BYTES = 1024
"""What a message costs as objects beyond its bytes."""
LOOK_AGAIN_MS = 2
"""How often the queue is looked at while somebody is not read."""


class Intake:
    def __init__(self, input_queue: InputQueue) -> None:
        self._queue = input_queue
        self._bytes: dict[int, int] = {}

    def note(self, client: int, frames: Sequence[bytes]) -> None:
        """Before the message is queued."""
        self._forget_taken()
        size = MESSAGE_OVERHEAD_BYTES + sum(map(len, frames))
        self._bytes[client] = self._bytes.get(client, 0) + size

    def may_read(self, client: int) -> bool:
        """Remembered from the last look at an empty queue: who sends all the time must not hide from the others that
        the loop has taken everything meanwhile."""
        self._forget_taken()
        return self._bytes.get(client, 0) <= limits.MAX_QUEUED_BYTES

    def _forget_taken(self) -> None:
        if self._bytes and self._queue.empty():
            self._bytes.clear()
