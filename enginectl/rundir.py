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

from enginectl.claim import claim_holder
from enginectl.control import EngineView
from enginectl.control_stats import ProcessInfo
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
    verify_looked,
    verify_private,
)
from enginectl.errors import BadRuntimeDir, NoSuchEngine, UsageError
from enginectl.identity import ProcessId, identify, is_alive
from enginectl.record import (
    LastStart,
    Record,
    lock_holder,
    read_json,
    read_record,
    read_regular,
    write_atomic,
    write_json,
)
from enginectl.settings import EngineSettings, check_settings
from enginectl.silence import why_silent

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
        return read_regular(path / "owner")[:4096].decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _tag(name: str) -> str:
    return f"{zlib.crc32(str(paths_of(name).state).encode()):08x}"


# ---------------------------------------------------------------- settings


def load_settings(name: str) -> EngineSettings | None:
    """What NAME was last started with; None when it never was, or the file cannot be read."""
    settings = read_json(paths_of(name).settings, EngineSettings)
    return settings if settings is not None and settings.name == name else None


def check_readable(name: str) -> None:
    """Raises UsageError for settings that are there and cannot be read: they say what NAME is; nothing is guessed."""
    path = paths_of(name).settings
    if not os.path.lexists(path) or load_settings(name) is not None:
        return
    try:
        why = "it does not hold the settings of an engine of that name" if read_regular(path) else "it is empty"
    except OSError as error:
        why = error.strerror or str(error)
    raise UsageError(
        f"the recorded settings of {name!r} cannot be read: {path}",
        cause=why,
        try_=[f"enginectl start {name} --model MODEL", f"rm {path}"],
    )


def save_settings(settings: EngineSettings) -> None:
    """Raises UsageError for settings that cannot be used, BadRuntimeDir when they cannot be written."""
    write_json(make_state_dir(check_settings(settings).name).settings, settings)


# ---------------------------------------------------------------- entries


@dataclass(frozen=True, slots=True)
class EngineEntry:
    """One engine as its files and the kernel showed it."""

    name: str
    paths: EnginePaths
    record: Record | None
    """None: none was written, or it is garbage."""
    liveness: Liveness
    supervisor: ProcessId | None
    """Who keeps this engine: the one of the record while it lives, else whoever holds its lock or its claim."""

    @classmethod
    def read(cls, name: str) -> EngineEntry:
        """Of any name, known or not. Raises BadRuntimeDir where somebody else's engines are kept."""
        paths = paths_of(name)
        verify_looked(state_root())
        there = verify_private(paths.state, STATE_SETTING) and os.path.lexists(paths.record)
        record = read_record(paths.record) if there else None
        supervisor, is_held = _keeper(paths, record)
        if is_held:
            return cls(name, paths, record, "running", supervisor)
        return cls(name, paths, record, _liveness(there, record), record.supervisor if record else None)

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
    def is_over(self) -> bool:
        """Its supervisor has written its last word; it may still be there for a moment to say it."""
        return self.record is not None and self.record.ended

    def wait_gone(self, timeout_s: float) -> bool:
        """Waits until the supervisor of this entry has ended. False at the deadline."""
        end = time.monotonic() + timeout_s
        while is_alive(self.supervisor):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def view(self) -> EngineView:
        """What can be said without a supervisor: the post-mortem of a dead engine, the trace of a lost one, and of one
        whose supervisor was asked and said nothing."""
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
        self._judge(view)
        if (last := read_json(self.paths.last_start, LastStart)) is not None:
            view.last_ready_after_s = last.ready_after_s
        return view

    def _judge(self, view: EngineView) -> None:
        """The state that the files' own word is replaced by."""
        engine = self.record.engine if self.record is not None else None
        if self.liveness == "stale":
            view.state, view.reason = "failed", f"stale: its supervisor is gone without a word{_where(view)}"
        elif self.liveness == "lost":
            view.state, view.reason = "lost", "supervisor gone, engine alive; it ends by itself within seconds"
        elif self.liveness == "running" and not self.is_over:
            view.state, view.reason = "unreachable", why_silent(self.supervisor)
        elif self.record is None and self.liveness == "dead":
            view.reason = "never started"
        if engine is not None and self.liveness in ("lost", "running") and is_alive(engine):
            view.process = ProcessInfo(pid=engine.pid, start_time=engine.start_time)


def _where(view: EngineView) -> str:
    """In which phase of its start an engine was, if it was not ready yet."""
    phase = next((phase.name for phase in view.phases if phase.took_s is None), "")
    return f", in phase {phase!r}" if phase else ""


def _keeper(paths: EnginePaths, record: Record | None) -> tuple[ProcessId | None, bool]:
    """The supervisor that lives, if it can be named, and whether there is one."""
    if record is not None and is_alive(record.supervisor):
        return record.supervisor, True
    pid = lock_holder(paths.lock)
    if not pid:  # at its very first instructions, its record overwritten, or its files removed
        pid = claim_holder(paths.state) or pid
    return (identify(pid) if pid else None), pid is not None and (pid == 0 or identify(pid) is not None)


def _liveness(there: bool, record: Record | None) -> Liveness:
    """Of an engine without a supervisor."""
    if record is None:
        return "stale" if there else "dead"
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
    that it hides no other; named on its own, it is refused with the reason. Raises BadRuntimeDir where the state
    directory is somebody else's: that none of ours is in it would be no answer."""
    verify_looked(state_root())
    entries = []
    for name in known_names():
        try:
            paths = paths_of(name)
            entry = EngineEntry.read(name)
            if entry.liveness != "dead" or entry.record is not None or paths.settings.exists():
                entries.append(entry)
        except BadRuntimeDir:
            continue
    return entries
