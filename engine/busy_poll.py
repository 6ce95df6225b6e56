"""How long engine-in looks at its sockets without sleeping, once an instant call is answered. Pure: times are given.

To wake a thread costs more than a short call itself when the core has halted meanwhile. So engine-in stays awake for a
moment, but only for who calls again at once: a poller that asks ten times a second never costs anything, and an idle
engine takes no CPU. Times are seconds of one monotonic clock. Used by engine-in alone."""

from __future__ import annotations

import math

BUSY_POLL_S = 200e-6
"""From the answer on. A caller that waits for it needs some 100 us until its next call is here."""
QUICK_S = 1e-3
"""A call that comes within this time of the answer before it is one of a row."""
NEVER = -math.inf


class BusyPoll:
    def __init__(self) -> None:
        self.until = NEVER
        """Until then engine-in does not sleep, while the loop waits for work and every client is read."""
        self._answered_at = NEVER
        self._before = NEVER
        """When the message before this one was answered; NEVER if that was no instant call."""

    def on_message(self) -> None:
        """One has come, of any kind. What is no instant call gives the loop work, so the row ends with it."""
        self._before, self._answered_at, self.until = self._answered_at, NEVER, NEVER

    def on_answer(self, came_at: float, answered_at: float) -> None:
        """That message was an instant call, and engine-in has sent the answer itself."""
        self._answered_at = answered_at
        if came_at - self._before <= QUICK_S:
            self.until = answered_at + BUSY_POLL_S
