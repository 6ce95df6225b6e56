"""Memory that malloc keeps although it was freed goes back to the system. Owned by whoever calls it; any thread.

Tensors of a step come and go with it, and malloc keeps their place for the next one. That is right while steps follow
each other, and tens of megabytes for nothing when none does."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

WORTH_BYTES = 8 * 1024**2
"""By so much a process must have grown: to give memory back takes a millisecond, which a small request should not
wait for."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Heap:
    """How large this process was when it last gave back what it could."""

    def __init__(self) -> None:
        self._resident_bytes = resident_bytes()

    def shrink(self) -> bool:
        """When the process has grown. Returns whether it gave back what it could."""
        now = resident_bytes()
        if now < self._resident_bytes + WORTH_BYTES:
            self._resident_bytes = min(now, self._resident_bytes)
            return False
        return_memory()
        self._resident_bytes = resident_bytes()
        return True


def return_memory() -> None:
    """All that is free, where the C library can do that."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
