"""How long a verb still waits: one deadline for all that it asks on the way. Owns nothing but a moment."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

SLACK_S = 0.3
"""The supervisor keeps the same deadline and says more about it: its word should come first."""
TAKE_BACK_S = 0.2
"""So much longer a supervisor takes to say whether a pause or sleep that was not done is taken back already."""


class Patience:
    """`timeout_s` from now on."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        """What the supervisor is told."""
        return max(0.0, self._end - time.monotonic())

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """What a person takes to answer a question does not count."""
        began = time.monotonic()
        yield
        self._end += time.monotonic() - began

    @property
    def wait_s(self) -> float:
        """What its answer is waited for."""
        return self.left_s + SLACK_S
