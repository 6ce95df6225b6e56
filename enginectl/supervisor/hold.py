"""Whether clients are being held while their engine is replaced, since when, and for how long at most.

Pure state and one timer; traffic keeps and replays what is held."""

from __future__ import annotations

import time
from collections.abc import Callable

from enginectl.supervisor.ledger import SampledMode
from enginectl.supervisor.loop import Future, Loop


class Hold:
    def __init__(self, loop: Loop, on_limit: Callable[[], None]) -> None:
        self.limit_s = 0.0
        self.sampled: SampledMode = "resume"
        self.over: Future[None] = Future()
        """Of the present hold: released, or past its limit."""
        self._loop = loop
        self._on_limit = on_limit
        self._began: float | None = None

    @property
    def is_holding(self) -> bool:
        return self._began is not None

    @property
    def held_s(self) -> float | None:
        return None if self._began is None else time.monotonic() - self._began

    def begin(self, limit_s: float, sampled: SampledMode) -> None:
        """Begins one; one that goes on stays as it is: its limit counts from its beginning."""
        if self.is_holding:
            return
        self._began = began = time.monotonic()
        self.limit_s, self.sampled, self.over = limit_s, sampled, Future()
        self._loop.after(limit_s, lambda: self._check(began))

    def _check(self, began: float) -> None:
        if self._began == began:
            self._on_limit()

    def end(self) -> float:
        """How long it was."""
        held_s = self.held_s or 0.0
        self._began = None
        self.over.set_result(None)
        return held_s
