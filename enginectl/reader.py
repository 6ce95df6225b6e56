"""Whoever reads our stdout: still there or gone. Asks the kernel, writes nothing; for commands that follow something
which may be silent for long, where a failing write would tell too late."""

from __future__ import annotations

import errno
import os
import select
import sys


def check_reader() -> None:
    """Raises BrokenPipeError when nobody can read stdout any more."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return
    if any(seen & select.POLLERR for _, seen in poll.poll(0)):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
