"""Waiting for a condition with a deadline: the only way a test waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout_s: float = 10.0, what: str = "", every_s: float = 0.02) -> T:
    """The first truthy value of condition(); raises AssertionError naming `what` at the deadline."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        time.sleep(every_s)
