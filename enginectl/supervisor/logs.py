"""Log files with a size limit: bytes come in, files of at most so many bytes stay.

Owns one file. A disk or directory that goes away loses lines, never the process; it comes back with reopen or by
itself at the next try."""

from __future__ import annotations

import os
import time
from pathlib import Path

from enginectl.record import open_regular

MAX_BYTES = 10 * 1024**2
KEEP = 3
RETRY_S = 5.0
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Not to wait for a reader where somebody put a pipe."""


class RotatingFile:
    """engine.log or supervisor.log: NAME, NAME.1, NAME.2; the oldest is dropped."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES, keep: int = KEEP) -> None:
        self.path = path
        self.lost_bytes = 0
        self._max_bytes = max_bytes
        self._keep = keep
        self._fd = -1
        self._size = 0
        self._retry_at = 0.0
        self.reopen()

    def write(self, data: bytes) -> None:
        """Never raises, never waits for a lock."""
        if self._fd < 0 and time.monotonic() >= self._retry_at:
            self.reopen()
        if self._size + len(data) > self._max_bytes and self._size:
            self._rotate()
        try:
            if self._fd < 0:
                raise OSError
            os.write(self._fd, data)
            self._size += len(data)
        except OSError:
            self.lost_bytes += len(data)

    def reopen(self) -> None:
        """Opens the path anew: after HUP, or when the file was moved away."""
        self.close()
        try:
            self._fd = os.open(self.path, LOG_FLAGS, 0o600)
            self._size = os.fstat(self._fd).st_size
        except OSError:
            self._retry_at = time.monotonic() + RETRY_S

    def check(self) -> None:
        """Makes the file anew when its path is gone."""
        if self._fd >= 0 and not self.path.exists():
            self.reopen()

    def _rotate(self) -> None:
        self.close()
        try:
            for number in range(self._keep - 1, 0, -1):
                older = self.path.with_name(f"{self.path.name}.{number - 1}") if number > 1 else self.path
                if older.exists():
                    os.replace(older, self.path.with_name(f"{self.path.name}.{number}"))
        except OSError:
            pass
        self.reopen()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def last_lines(path: Path, count: int, max_bytes: int = 256 * 1024) -> list[str]:
    """The end of a log, fewer lines when there are not so many. Missing file: none."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return file.read().decode("utf-8", "replace").splitlines()[-count:]
    except OSError:
        return []
