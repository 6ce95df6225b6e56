"""What a supervisor owns on disk comes back when somebody removed or took it: directories, sockets, lock, record,
settings, logs. Looked at each second; what cannot be repaired is said once and tried again."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import zmq

from enginectl.claim import Claim
from enginectl.errors import CtlError
from enginectl.record import EngineLock
from enginectl.rundir import make_runtime_dir, make_state_dir, save_settings

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

Held: TypeAlias = tuple[EngineLock, Claim]
"""What makes a process the one supervisor of its engine."""


class Possessions:
    def __init__(self, daemon: Daemon, lock: EngineLock, claim: Claim) -> None:
        self._daemon = daemon
        self._lock = lock
        self._claim = claim
        self._told: dict[str, str] = {}
        if claim.fd >= 0:
            daemon.loop.watch(claim.fd, claim.answer)

    def look(self) -> None:
        self._try("runtime-dir", self._look_at_sockets)
        self._try("state-dir", self._look_at_state)
        for log in (self._daemon.log, self._daemon.engine_log):
            log.check()

    def _try(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except (CtlError, OSError, zmq.ZMQError) as error:
            if self._told.get(what) != str(error):
                self._daemon.events.add(what, f"cannot be used: {error}")
            self._told[what] = str(error)
        else:
            self._told.pop(what, None)

    def _look_at_sockets(self) -> None:
        daemon = self._daemon
        make_runtime_dir(daemon.base, daemon.paths.state)
        for text in daemon.server.check():
            daemon.events.add("socket", text)
            daemon.notice = text

    def _look_at_state(self) -> None:
        """A state directory that nobody may write any more, but that has everything, is left in peace."""
        daemon = self._daemon
        paths = daemon.paths
        if not os.path.lexists(paths.state):
            make_state_dir(paths.name)
            daemon.events.add("state-dir", "was removed; written again")
        if not self._lock.is_intact():
            self._lock.take()
            daemon.events.add("lock", "was removed; taken again")
        if not _is_file(paths.settings):
            _move_away(paths.settings)
            save_settings(daemon.settings)
        if not daemon.has_own_record():
            _move_away(paths.record)
            daemon.save_record(ended=daemon.is_over)
            daemon.events.add("record", "record.json was changed by somebody else; written again")


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _move_away(path: Path) -> None:
    """A directory cannot be written over. It is kept: nobody here knows what it holds."""
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}.found-{time.time_ns()}"))
