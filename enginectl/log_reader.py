"""Lines of an engine's log, from files that its supervisor writes and rotates: the last start, or the one before.

Reads NAME, NAME.1, NAME.2 from the end; follows by looking again. Never holds a whole log in memory."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

MARK = re.compile(rb"^--- enginectl: instance ")
"""The line a supervisor writes into the engine's log before each start."""
OLDER = 3
POLL_S = 0.2
MAX_LINE_BYTES = 64 * 1024


def rotated(path: Path) -> list[Path]:
    """The files of one log, oldest first."""
    candidates = [path.with_name(f"{path.name}.{n}") for n in range(OLDER, 0, -1)] + [path]
    return [candidate for candidate in candidates if candidate.is_file()]


def last_lines(path: Path, limit: int, *, back: int = 0) -> list[str]:
    """The last `limit` lines of one start: back=0 the last, back=1 the one before it."""
    starts: deque[deque[str]] = deque(maxlen=back + 1)
    starts.append(deque(maxlen=limit))
    for file in rotated(path):
        with open(file, "rb") as stream:
            for line in iter(lambda: stream.readline(MAX_LINE_BYTES), b""):
                if MARK.match(line):
                    starts.append(deque(maxlen=limit))
                else:
                    starts[-1].append(line.decode("utf-8", "replace").rstrip("\r\n"))
    return list(starts[0]) if len(starts) > back else []


def end_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def follow(path: Path, offset: int, goes_on: Callable[[], bool]) -> Iterator[str]:
    """Lines written after `offset`, as they come, through rotation; ends once goes_on() is False and all is read."""
    position, inode, rest = offset, _inode(path), b""
    while True:
        last_look = not goes_on()
        data, position, inode = _read_on(path, position, inode)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if not MARK.match(line):
                yield line[:MAX_LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
        if last_look and not data:
            if rest:
                yield rest.decode("utf-8", "replace")
            return
        if not data:
            time.sleep(POLL_S)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _read_on(path: Path, position: int, inode: int) -> tuple[bytes, int, int]:
    """What is new, the new position, the file it is in. A rotated file is read to its end first."""
    now = _inode(path)
    data = b""
    if now != inode and inode:
        older = path.with_name(f"{path.name}.1")
        if _inode(older) == inode:
            data, _ = _tail(older, position)
        position = 0
    fresh, position = _tail(path, position if end_of(path) >= position else 0)
    return data + fresh, position, now


def _tail(path: Path, position: int) -> tuple[bytes, int]:
    try:
        with open(path, "rb") as stream:
            stream.seek(position, os.SEEK_SET)
            data = stream.read(1 << 20)
            return data, position + len(data)
    except OSError:
        return b"", position
