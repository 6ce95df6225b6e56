"""What happened to an engine, in order: the youngest few hundred lines, also written to supervisor.log.

Texts here never hold a prompt, an output or a token."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from enginectl.control import EventView
from enginectl.settings import Scalar

KEEP = 500


class EventLog:
    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._events: deque[EventView] = deque(maxlen=KEEP)
        self._seq = 0

    def add(self, type: str, text: str, **data: Scalar) -> None:
        self._seq += 1
        self._events.append(EventView(ts=time.time(), seq=self._seq, type=type, text=text, data=data))
        self._write(f"{type}: {text}")

    def last(self, limit: int, since_seq: int = 0) -> list[EventView]:
        """The youngest `limit` with a seq above since_seq, oldest first."""
        found = [event for event in self._events if event.seq > since_seq]
        return found[-limit:] if limit > 0 else []
