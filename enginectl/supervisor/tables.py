"""The engine's request table for everybody who asks: one question to the engine, however many observers there are.

Answers are shared for FRESH_S. One engine cannot be made slower by more people looking at it."""

from __future__ import annotations

import time

from engine.messages import RequestTable
from enginectl.errors import CtlError
from enginectl.supervisor.calls import Calls
from enginectl.supervisor.loop import Future, Loop

FRESH_S = 0.4
ASK_S = 1.0
ROWS = 1000


class Tables:
    """Main thread only."""

    def __init__(self, loop: Loop, calls: Calls) -> None:
        self._loop = loop
        self._calls = calls
        self._table: RequestTable | None = None
        self._at = -FRESH_S
        self._asking: Future[None] | None = None

    async def get(self) -> RequestTable | None:
        """None when the engine does not answer: then the supervisor's own table is all there is."""
        if time.monotonic() - self._at >= FRESH_S:
            if self._asking is None:
                self._asking = self._loop.spawn(self._ask())
            await self._asking
        return self._table

    async def _ask(self) -> None:
        try:
            self._table = await self._calls.get("requests", RequestTable, ROWS, timeout_s=ASK_S)
        except CtlError:
            self._table = None
        self._at = time.monotonic()
        self._asking = None
