"""One engine process of ours, seen from its parent: its end, its last words, and the way to stop it.

Enters: a process just spawned, with the two pipes it inherited. Leaves: exit status, start phases, cause of death.
Owned by the client that started it. Dies by stop(): TERM, then KILL to its whole session, then reaped; close() gives
the descriptors back."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KILL_WAIT_S = 0.7
UNKNOWN_EXIT = -1000
_ERROR_MARKS = ("Error:", "Error(", "Exception:", "error:", "Killed", "SystemExit")


@dataclass(frozen=True, slots=True)
class Failure:
    """What an engine said of its own failure."""

    phase: str
    error: str
    """One line: class and message."""


class StatusReader:
    """The lines of a status pipe. `phase` is the last one begun; `failure` is set when the engine reported one."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.phase = "spawn"
        self.failure: Failure | None = None
        self.is_open = True
        self._rest = b""
        os.set_blocking(fd, False)

    def read(self) -> None:
        """Takes what is there, without blocking. After the end of file `is_open` is false."""
        while self.is_open:
            try:
                chunk = os.read(self.fd, 65536)
            except BlockingIOError:
                return
            except OSError:
                chunk = b""
            self.is_open = bool(chunk)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            fields = json.loads(line)
            phase, event = str(fields["phase"]), fields["event"]
        except (ValueError, KeyError, TypeError):
            return  # a stray print of some library; the log has it
        if event == "failed":
            self.failure = self.failure or Failure(phase, str(fields.get("error", "")))
        else:
            self.phase = phase

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd, self.is_open = -1, False


class EngineProcess:
    """Thread-safe. Watches by pidfd, so a recycled pid is never signalled; `pidfd` turns readable at the end.

    reap(): takes the zombie away from the kernel, called once, after the end. death_fd: the write end of the pipe whose
    end of file tells the engine that we are gone."""

    def __init__(self, pid: int, reap: Callable[[], None], status: StatusReader, death_fd: int, log_path: Path) -> None:
        self.pid = pid
        self.status = status
        self.log_path = log_path
        self.pidfd = os.pidfd_open(pid)
        self._reap = reap
        self._death_fd = death_fd
        self._exit: int | None = None
        self._reaped = False

    def exit_status(self) -> int | None:
        """As subprocess tells it: negative for a signal. None while it runs; UNKNOWN_EXIT: somebody else reaped it."""
        if self._exit is None:
            self._exit = self._look()
        return self._exit

    def _look(self) -> int | None:
        if self.pidfd < 0:
            return UNKNOWN_EXIT
        try:
            found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return UNKNOWN_EXIT if self.wait(0) else None
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def wait(self, timeout_s: float) -> bool:
        """True when it has ended within timeout_s. Any number of threads may wait."""
        if self.pidfd < 0:
            return True
        poller = select.poll()  # not select(): a program with over 1,024 open files is no reason to fail
        poller.register(self.pidfd, select.POLLIN)
        return bool(poller.poll(max(0.0, timeout_s) * 1000))

    def describe_end(self) -> str:
        """One sentence: who ended, how, and the cause it reported or the last error line of its log."""
        status = self.exit_status()
        if status is None:
            how = "is still there"
        elif status == UNKNOWN_EXIT:
            how = "ended, exit status unknown"
        elif status < 0:
            how = f"was killed by {_signal_name(-status)}"
        else:
            how = f"ended with exit status {status}"
        cause = self.cause()
        return f"engine process {self.pid} {how}" + (f": {cause}" if cause else "")

    def cause(self) -> str:
        """What it said on its status pipe, else the last line of its log that names an error, else nothing."""
        self.status.read()
        if self.status.failure is not None:
            return self.status.failure.error
        return error_line(self.log_path)

    def send_signal(self, number: signal.Signals) -> None:
        if self.pidfd < 0:
            return
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            pass

    def stop(self, term_wait_s: float, kill_wait_s: float = KILL_WAIT_S) -> bool:
        """TERM, KILL after term_wait_s, then everything left in its session. True when it has ended.

        Returns within the sum of the two waits. By the owner; close() is due afterwards."""
        if not self.wait(0):
            self.send_signal(signal.SIGTERM)
            if not self.wait(term_wait_s):
                self.send_signal(signal.SIGKILL)
        ended = self.wait(kill_wait_s)
        self.exit_status()
        self._kill_session()
        if ended and not self._reaped:
            self._reaped = True
            self._reap()
        return ended

    def _kill_session(self) -> None:
        if self._reaped:
            return
        # Before the leader is reaped: until then its pid cannot be anybody else's process group.
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except OSError as error:
            if error.errno not in (errno.ESRCH, errno.EPERM):
                raise

    def close(self) -> None:
        """The descriptors, once nobody polls them; the engine sees the end of the death pipe."""
        if self.pidfd < 0:
            return
        self.status.read()
        self.status.close()
        os.close(self._death_fd)
        pidfd, self.pidfd = self.pidfd, -1
        os.close(pidfd)


def error_line(log_path: Path, tail_bytes: int = 16384) -> str:
    """The last line of a log that names an error; empty when there is none or the file is gone."""
    try:
        with log_path.open("rb") as log:
            log.seek(max(0, log_path.stat().st_size - tail_bytes))
            lines = log.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    named = [line.strip() for line in lines if any(mark in line for mark in _ERROR_MARKS)]
    return named[-1] if named else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
