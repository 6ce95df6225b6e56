"""Finding engines: the files of one engine, the list of all, and what is true of each now.

Enters: names. Leaves: EngineEntry values, frozen at the moment they were read. Writes settings.json only; everything
else in the two directories is written by the supervisor that holds the lock."""

from __future__ import annotations

import os
import stat
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from enginectl.control import EngineView, ProcessInfo
from enginectl.dirs import (
    NAME_PATTERN,
    RUNTIME_SETTING,
    STATE_SETTING,
    check_name,
    make_private,
    make_root,
    runtime_name,
    runtime_root,
    state_root,
    verify_private,
)
from enginectl.errors import BadRuntimeDir, NoSuchEngine
from enginectl.identity import ProcessId, is_alive
from enginectl.record import LastStart, Record, lock_is_held, read_json, read_record, write_atomic, write_json
from enginectl.settings import EngineSettings, check_settings

Liveness = Literal["running", "dead", "stale", "lost"]
"""running: its supervisor lives. dead: it ended and said how, or never ran. stale: the record claims a supervisor that
is gone. lost: the supervisor is gone and the engine still lives."""


@dataclass(frozen=True, slots=True)
class EnginePaths:
    """Where everything of one engine is. Nothing is created by asking."""

    name: str
    state: Path
    """engines/NAME in the state directory."""

    @property
    def settings(self) -> Path:
        return self.state / "settings.json"

    @property
    def record(self) -> Path:
        return self.state / "record.json"

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def engine_log(self) -> Path:
        return self.state / "engine.log"

    @property
    def supervisor_log(self) -> Path:
        return self.state / "supervisor.log"

    @property
    def last_start(self) -> Path:
        return self.state / "last_start.json"

    @property
    def evidence(self) -> Path:
        return self.state / "evidence"


def paths_of(name: str) -> EnginePaths:
    return EnginePaths(name=check_name(name), state=state_root() / "engines" / name)


def make_state_dir(name: str) -> EnginePaths:
    """Creates or checks the engine's state directory. Raises BadRuntimeDir."""
    paths = paths_of(name)
    root = make_root(state_root(), STATE_SETTING)
    make_private(root / "engines", STATE_SETTING)
    make_private(paths.state, STATE_SETTING)
    return paths


def runtime_dir_of(name: str) -> Path:
    """Where this engine's sockets go if its supervisor starts now. Raises BadRuntimeDir when the path is too long."""
    root = runtime_root()
    path = root / runtime_name(root, name, state_root())
    owner = _read_owner(path)
    if owner and owner != str(paths_of(name).state):  # the same name in another state directory
        return root / runtime_name(root, f"{name}.{_tag(name)}", state_root())
    return path


def make_runtime_dir(path: Path, state: Path) -> Path:
    """Creates or checks the directory for sockets and writes down whose it is. Raises BadRuntimeDir."""
    make_root(path.parent, RUNTIME_SETTING)
    make_private(path, RUNTIME_SETTING)
    if _read_owner(path) != str(state):
        write_atomic(path / "owner", f"{state}\n".encode())
    return path


def sweep_sockets(path: Path) -> int:
    """Removes sockets of ours that a dead supervisor left. Only for the holder of the lock. Returns how many."""
    count = 0
    for entry in os.scandir(path):
        seen = entry.stat(follow_symlinks=False)
        if stat.S_ISSOCK(seen.st_mode) and seen.st_uid == os.geteuid():
            os.unlink(entry.path)
            count += 1
    return count


def remove_runtime_dir(path: Path) -> None:
    """At a clean end: our sockets, the owner mark, the directory if nothing foreign is in it. Never raises."""
    try:
        sweep_sockets(path)
        for name in ("owner", "utilities", "requests"):
            (path / name).unlink(missing_ok=True)
        path.rmdir()
    except OSError:
        pass


def _read_owner(path: Path) -> str:
    try:
        return (path / "owner").read_text()[:4096].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _tag(name: str) -> str:
    return f"{zlib.crc32(str(paths_of(name).state).encode()):08x}"


# ---------------------------------------------------------------- settings


def load_settings(name: str) -> EngineSettings | None:
    """What NAME was last started with; None when it never was, or the file cannot be read."""
    settings = read_json(paths_of(name).settings, EngineSettings)
    return settings if settings is not None and settings.name == name else None


def save_settings(settings: EngineSettings) -> None:
    """Raises UsageError for settings that cannot be used, BadRuntimeDir when they cannot be written."""
    write_json(make_state_dir(check_settings(settings).name).settings, settings)


# ---------------------------------------------------------------- entries


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """One engine as its files and /proc showed it."""

    name: str
    paths: EnginePaths
    record: Record | None
    """None: none was written, or it is garbage."""
    liveness: Liveness

    @classmethod
    def read(cls, name: str) -> EngineEntry:
        """Of any name, known or not."""
        paths = paths_of(name)
        there = verify_private(paths.state, STATE_SETTING) and paths.record.exists()
        record = read_record(paths.record) if there else None
        return cls(name=name, paths=paths, record=record, liveness=_liveness(paths, there, record))

    @classmethod
    def find(cls, name: str) -> EngineEntry:
        """Raises NoSuchEngine with the names there are, UsageError when it cannot be a name."""
        entry = cls.read(name)
        if entry.record is None and not entry.paths.settings.exists() and entry.liveness == "dead":
            known = known_names()
            listed = ", ".join(known[:20]) if known else "none yet"
            raise NoSuchEngine(f"no engine is called {name!r}", cause=f"known: {listed}", try_=["enginectl ps"])
        return entry

    @property
    def settings(self) -> EngineSettings | None:
        return load_settings(self.name)

    @property
    def runtime_dir(self) -> Path:
        return Path(self.record.runtime_dir) if self.record and self.record.runtime_dir else runtime_dir_of(self.name)

    @property
    def control_socket(self) -> Path:
        return self.runtime_dir / "control.sock"

    @property
    def stats_socket(self) -> Path:
        return self.runtime_dir / "stats.sock"

    @property
    def supervisor(self) -> ProcessId | None:
        return self.record.supervisor if self.record else None

    def wait_gone(self, timeout_s: float) -> bool:
        """Waits until the supervisor of this entry has ended. False at the deadline."""
        end = time.monotonic() + timeout_s
        while is_alive(self.supervisor):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def view(self) -> EngineView:
        """What can be said without a supervisor: the post-mortem of a dead engine, the trace of a lost one."""
        record = self.record or Record(name=self.name, ended=not self.paths.record.exists(), state="exited")
        view = EngineView(
            name=self.name,
            state=record.state,
            reason=record.reason,
            instance=record.instance,
            model=record.model,
            engine=record.engine_kind,
            started_at=record.started_at,
            ready_after_s=record.ready_after_s,
            phases=record.phases,
            ready=record.ready,
            asked=record.asked,
            restarts=record.restarts,
            restart_policy=record.restart_policy,
            last_exit=record.last_exit,
            log=str(self.paths.engine_log),
            supervisor_version=record.supervisor_version,
            observed_at=time.time(),
        )
        if not view.model and (settings := self.settings) is not None:
            view.model = settings.model
        if self.liveness == "stale":
            view.state, view.reason = "failed", "stale: its supervisor is gone without a word"
        elif self.liveness == "lost":
            view.state, view.reason = "lost", "supervisor gone, engine alive; it ends by itself within seconds"
            if record.engine is not None:
                view.process = ProcessInfo(pid=record.engine.pid, start_time=record.engine.start_time)
        elif self.record is None and self.liveness == "dead":
            view.reason = "never started"
        if (last := read_json(self.paths.last_start, LastStart)) is not None:
            view.last_ready_after_s = last.ready_after_s
        return view


def _liveness(paths: EnginePaths, there: bool, record: Record | None) -> Liveness:
    if record is None:
        if lock_is_held(paths.lock):  # at its very first instructions, or its record was overwritten
            return "running"
        return "stale" if there else "dead"
    if is_alive(record.supervisor):
        return "running"
    if lock_is_held(paths.lock):
        return "running"
    if is_alive(record.engine):
        return "lost"
    return "dead" if record.ended else "stale"


def known_names() -> list[str]:
    """Every name that has a state directory, sorted. What cannot be a name is somebody else's, and passed over."""
    try:
        names = [entry.name for entry in os.scandir(state_root() / "engines") if entry.is_dir()]
        return sorted(name for name in names if NAME_PATTERN.fullmatch(name))
    except OSError:
        return []


def list_engines() -> list[EngineEntry]:
    """All engines of this user and state directory, by name. One whose directory cannot be trusted is left out, so
    that it hides no other; named on its own, it is refused with the reason."""
    entries = []
    for name in known_names():
        try:
            paths = paths_of(name)
            if paths.record.exists() or paths.settings.exists() or lock_is_held(paths.lock):
                entries.append(EngineEntry.read(name))
        except BadRuntimeDir:
            continue
    return entries
