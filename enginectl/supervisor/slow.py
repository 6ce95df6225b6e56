"""Steps that took a multiple of the usual: counted over the window, and the youngest one kept with what was in it.

Enters: each step's time, and once a second the median it is judged by. Leaves: a count, a SlowStep, and now and then
one line for the events. Bounded, clock passed in."""

from __future__ import annotations

from collections import deque

from enginectl.control_stats import SlowStep
from enginectl.text import count

FACTOR = 3.0
MIN_LOST_MS = 5.0
"""A step that loses less than this against the usual is nobody's trouble, however many times slower it is."""
MIN_STEPS = 20
"""So many make a usual step."""
NEWS_EVERY_S = 60.0
"""One event a minute at most: the others of an engine must stay readable."""


class SlowSteps:
    """One engine run."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._times: deque[float] = deque(maxlen=8192)
        self._usual_ms: float | None = None
        self._told_at = float("-inf")
        self._untold: SlowStep | None = None
        self.last: SlowStep | None = None

    def set_usual(self, ordered_ms: list[float]) -> None:
        """The step times of the window, sorted."""
        if len(ordered_ms) >= MIN_STEPS:
            self._usual_ms = ordered_ms[len(ordered_ms) // 2]

    def add(self, now: float, step: int, ms: float, tokens: int, prefill_tokens: int) -> None:
        usual = self._usual_ms
        if usual is None or ms < FACTOR * usual or ms - usual < MIN_LOST_MS:
            return
        self._times.append(now)
        self.last = self._untold = SlowStep(step=step, ms=ms, tokens=tokens, prefill_tokens=prefill_tokens)

    def count(self, now: float) -> int:
        """Within the window; with none left the last is of the past too."""
        while self._times and now - self._times[0] > self._window_s:
            self._times.popleft()
        if not self._times:
            self.last = None
        return len(self._times)

    def news(self, now: float) -> str:
        """Of the youngest that nobody was told of; empty when there is none, or the last news is too young."""
        if self._untold is None or now - self._told_at < NEWS_EVERY_S:
            return ""
        told, self._untold, self._told_at = self._untold, None, now
        what = f"prefill {count(told.prefill_tokens, 'token')}" if told.prefill_tokens else count(told.tokens, "token")
        return f"{told.step} ({told.ms:,.0f} ms, usual {self._usual_ms:,.0f} ms): {what}"
