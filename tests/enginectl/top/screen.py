"""A program on a real pseudo-terminal that is its controlling terminal, so that ^C, ^Z and hang-ups are real."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Sequence
from types import TracebackType

from tests.support.wait import wait_until

ENTER, LEAVE, SHOW = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
END = b"<end of output>"
_ADOPT = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"


class Screen:
    """A context manager; `output` grows while the program writes. The program is killed at the end if it lives.
    under_shell: as a job of a shell, which can be stopped; Enter then continues it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        columns: int = 100,
        rows: int = 32,
        env: dict[str, str] | None = None,
        under_shell: bool = False,
        cwd: str | None = None,
    ) -> None:
        self.output = b""
        self.master, self.slave = pty.openpty()
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(self.slave)
        full = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": os.getcwd()} | (env or {})
        command = [sys.executable, *argv]
        if under_shell:
            command = ["/bin/bash", "-c", 'set -m; "$@"; read line; fg', "bash", *command]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ADOPT, *command],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
            env=full,
            cwd=cwd,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                self.output += data

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def press(self, keys: bytes, word: str, timeout_s: float = 8.0) -> None:
        """Types, and waits for the word in what is written from then on."""
        start = len(self.output)
        self.type(keys)
        wait_until(lambda: word.encode() in self.output[start:], timeout_s, f"{word!r} after {keys!r}")

    def wait_for(self, *words: str, timeout_s: float = 20.0) -> None:
        for word in words:
            wait_until(lambda word=word: word.encode() in self.output, timeout_s, f"{word!r} on the screen")

    def wait_after(self, word: str, timeout_s: float = 20.0, *, start: int | None = None) -> None:
        """The word in what is written from now on, or from `start` on: what is not new is not written again."""
        start = len(self.output) if start is None else start
        wait_until(lambda: word.encode() in self.output[start:], timeout_s, f"{word!r} on the screen again")

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def end(self, timeout_s: float = 15.0) -> int:
        """The program's exit status, once everything that it wrote is in `output`."""
        code = self.process.wait(timeout_s)
        os.write(self.slave, END)  # after all that the program wrote
        wait_until(lambda: self.output.endswith(END), what="all output")
        self.output = self.output.removesuffix(END)
        return code

    @property
    def job(self) -> int:
        """The pid of the program that the shell started; 0 when there is none."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            found = file.read().split()
        return int(found[0]) if found else 0

    @property
    def is_restored(self) -> bool:
        """The alternate screen left, the cursor shown, the modes as they were."""
        after = self.output[self.output.rindex(ENTER) :]
        return LEAVE in after and SHOW in after and termios.tcgetattr(self.slave) == self.modes

    @property
    def scrollback(self) -> str:
        """What was written after the alternate screen was left for the last time."""
        return self.output[self.output.rindex(LEAVE) :].decode()

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
        os.close(self.slave)
        self._reader.join(5)
        os.close(self.master)
