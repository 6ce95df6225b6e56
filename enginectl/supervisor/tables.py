"""The engine's request table for everybody who asks: one question to the engine, however many observers there are.

Answers are shared for FRESH_S. One engine cannot be made slower by more people looking at it."""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.reports import RequestTable
from enginectl.errors import CtlError
from enginectl.supervisor.calls import Calls
from enginectl.supervisor.loop import Future, Loop

FRESH_S = 0.4
ASK_S = 1.0
ROWS = 1000


class Tables:
    """Main thread only. `has_table`: whether this kind of engine knows the question; vLLM's would log an error."""

    def __init__(self, loop: Loop, calls: Calls, has_table: Callable[[], bool] = lambda: True) -> None:
        self._loop = loop
        self._calls = calls
        self._has_table = has_table
        self._table: RequestTable | None = None
        self._at = -FRESH_S
        self._asking: Future[None] | None = None

    async def get(self) -> RequestTable | None:
        """None when the engine has none or does not answer: then the supervisor's own table is all there is."""
        if not self._has_table():
            return None
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
        finally:
            self._at = time.monotonic()
            self._asking = None
