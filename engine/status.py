"""Phases of a start, told to whoever spawned this process as JSON lines on an inherited file descriptor.

Never on the handshake socket: a frontend goes down on anything it does not expect there. Without a descriptor the
same lines go to the log. A reader that went away is not an error."""

from __future__ import annotations

import json
import logging
import os
import time
import traceback

logger = logging.getLogger("engine")


class StatusReport:
    """Writes `{"phase", "event", "detail", "t"}` lines. Any thread; each line is one write."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd = fd
        self.phase = "spawn"

    def begin(self, phase: str, detail: str = "") -> None:
        """Said again for the phase that goes on already, it changes nothing."""
        if phase == self.phase:
            return
        self.phase = phase
        logger.info("%s ...", phase)
        self._write({"phase": phase, "event": "begin", "detail": detail})

    def progress(self, phase: str, detail: str) -> None:
        logger.debug("%s: %s", phase, detail)
        self._write({"phase": phase, "event": "progress", "detail": detail})

    def end(self, phase: str, detail: str = "") -> None:
        logger.info("%s done%s", phase, f": {detail}" if detail else "")
        self._write({"phase": phase, "event": "end", "detail": detail})

    def failed(self, error: BaseException, phase: str | None = None) -> None:
        """The first line of the error and the end of its traceback; the whole goes to the log."""
        first = f"{type(error).__name__}: {error}".splitlines()[0]
        tail = "".join(traceback.format_exception(error))[-2000:]
        self._write({"phase": phase or self.phase, "event": "failed", "error": first, "detail": tail})

    def _write(self, line: dict[str, object]) -> None:
        if self._fd is None:
            return
        line["t"] = time.monotonic()
        try:
            os.write(self._fd, json.dumps(line).encode() + b"\n")
        except OSError:
            self._fd = None
