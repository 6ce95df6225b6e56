"""All processes of one session: what memory and CPU they take, and their end.

Enters: a command. Leaves: a process that leads a session of its own, so that whatever it starts can be found again.
Owned by one thread. Dies by stop() or close(): each process that is left is ended by its pid."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOOK_EVERY_S = 0.01
KILL_WAIT_S = 10.0
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Member:
    """A process as /proc/PID/stat tells it."""

    pid: int
    session: int
    state: str
    cpu_s: float
    rss_bytes: int


def parse_stat(text: str) -> Member:
    """The name stands in brackets and may hold anything, brackets and blanks too: what follows it is read by place."""
    pid, _, rest = text.partition(" (")
    fields = rest.rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return Member(int(pid), int(fields[3]), fields[0], ticks / TICKS, int(fields[21]) * PAGE_BYTES)


def members(session: int) -> list[Member]:
    """Living processes of a session; the dead that nobody reaped do not count."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                member = parse_stat((entry / "stat").read_text())
                if member.session == session and member.state not in "ZX":
                    found.append(member)
    return found


def machine_busy_s() -> float:
    """CPU time that all processes of this machine have taken so far, in seconds; waiting for disks is no work."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = (
        int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


class Session:
    """Started by the constructor; output goes to log_path."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log_path: Path, directory: Path) -> None:
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory, env=dict(environment),
                start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def members(self) -> list[Member]:
        return members(self.pid)

    def rss_bytes(self) -> int:
        """Of all of them; pages that several share are counted for each."""
        return sum(member.rss_bytes for member in self.members())

    def cpu_s(self) -> float:
        """Of those that live now."""
        return sum(member.cpu_s for member in self.members())

    def stop(self, patience_s: float) -> float | None:
        """SIGTERM to the group; seconds until nobody is left. None: not within patience_s, they were killed."""
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        gone = self._wait_gone(patience_s)
        took = time.monotonic() - began
        self.close()
        return took if gone else None

    def close(self) -> None:
        """At once, and for certain."""
        end = time.monotonic() + KILL_WAIT_S
        while (left := self.members()) and time.monotonic() < end:
            for member in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGKILL)
            self._wait_gone(0.5)
        self.process.wait(KILL_WAIT_S)

    def _wait_gone(self, patience_s: float) -> bool:
        end = time.monotonic() + patience_s
        while True:
            # Reaped first: as long as the leader is a zombie its pid cannot be another process's.
            if self.process.poll() is not None and not self.members():
                return True
            if time.monotonic() > end:
                return False
            time.sleep(LOOK_EVERY_S)
