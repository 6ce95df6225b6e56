"""Which process is meant: pid, kernel start time and boot id together, read from /proc.

Enters: pids and records. Leaves: yes or no, and signals to nobody else. Owns nothing. A pid alone is never trusted:
it may have been given to another process since it was written down."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAX_PID = 2**31 - 1


class ProcessId(Struct, frozen=True, kw_only=True):
    pid: int
    start_time: int
    """Kernel start time, clock ticks since boot."""
    boot_id: str


class ProcStat(NamedTuple):
    """The fields of /proc/PID/stat that matter here."""

    state: str
    """One letter: R S D T t Z X."""
    ppid: int
    pgrp: int
    session: int
    cpu_ticks: int
    """User and system time of all threads."""
    start_time: int
    rss_bytes: int


def read_stat(pid: int) -> ProcStat | None:
    """None when there is no such process or it cannot be read."""
    if not 0 < pid <= MAX_PID:
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name may hold spaces and parentheses
    return ProcStat(
        state=fields[0].decode(),
        ppid=int(fields[1]),
        pgrp=int(fields[2]),
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_time=int(fields[19]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def boot_id() -> str:
    """The same for the life of any process; empty where the kernel does not tell."""
    try:
        return _read_boot_id()
    except OSError:
        return ""


@functools.cache
def _read_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessId | None:
    """What to write down about a process that is alive now."""
    stat = read_stat(pid)
    return None if stat is None else ProcessId(pid=pid, start_time=stat.start_time, boot_id=boot_id())


def is_alive(who: ProcessId | None) -> bool:
    """True when exactly that process still runs. A zombie does not."""
    if who is None or who.boot_id != boot_id():
        return False
    stat = read_stat(who.pid)
    if stat is None:  # a caller that may open no more files cannot read it, and it lives all the same
        return os.path.exists(f"/proc/{who.pid}/stat")
    return stat.start_time == who.start_time and stat.state not in "ZX"


def is_stopped(who: ProcessId | None) -> bool:
    """By a signal or a debugger; it does nothing until it is let go on."""
    stat = read_stat(who.pid) if who is not None else None
    return who is not None and stat is not None and stat.start_time == who.start_time and stat.state in "Tt"


def send_signal(who: ProcessId, number: signal.Signals) -> bool:
    """Signals exactly that process, through a pidfd checked after it was opened. False: it is gone."""
    if not 0 < who.pid <= MAX_PID:
        return False
    try:
        fd = os.pidfd_open(who.pid)
    except OSError:
        return False
    try:
        if not is_alive(who):
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def child_sessions(parent: int) -> list[int]:
    """Children of a process that lead sessions of their own, as an engine does."""
    found = []
    for entry in os.listdir("/proc"):
        stat = read_stat(int(entry)) if entry.isdigit() else None
        if stat is not None and stat.ppid == parent and stat.session == int(entry) and stat.state not in "ZX":
            found.append(int(entry))
    return found


def session_members(session: int) -> list[int]:
    """Live pids whose session or process group is `session`, zombies left out. While one lives the kernel gives the
    number to nobody else, so they are what the session's leader left behind."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        stat = read_stat(int(entry))
        if stat is not None and session in (stat.session, stat.pgrp) and stat.state not in "ZX":
            found.append(int(entry))
    return found
