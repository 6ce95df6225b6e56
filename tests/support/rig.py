"""Real supervisors with real engine processes on a tiny model, in directories of one test; gone when it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enginectl.client import Engine, connect
from enginectl.control import EngineView
from enginectl.identity import ProcessId, identify, is_alive, read_stat, send_signal
from enginectl.launch import launch_supervisor
from enginectl.rundir import EngineEntry, save_settings
from enginectl.settings import EngineSettings
from tests.support.tiny_model import make_tiny_model
from tests.support.wait import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
PACED = "tests.support.paced_executor:PacedExecutor"


class Rig:
    """Starts engines by name. `model` is a tiny random one; engines run the paced executor unless told otherwise."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = make_tiny_model(root / "model")
        self._seen: list[ProcessId] = []
        self._names: set[str] = set()

    def settings(
        self,
        name: str,
        env: dict[str, str] | None = None,
        restart: str = "no",
        stop: str = "abort",
        start_timeout_s: float = 60.0,
        python: str = sys.executable,
        **config: object,
    ) -> EngineSettings:
        values: dict[str, object] = {
            "model": str(self.model),
            "executor": PACED,
            "threads": 1,
            "num_gpu_blocks": 256,
            "max_num_seqs": 8,
            "orphan_grace_s": 1.0,
            **config,
        }
        environment = {"PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **(env or {})}
        return EngineSettings(
            name=name,
            config=values,
            env=environment,
            restart=restart,
            stop=stop,  # type: ignore[arg-type]
            start_timeout_s=start_timeout_s,
            term_s=1.0,
            python=python,
        )

    def launch(self, settings: EngineSettings) -> int:
        """The supervisor's pid; the engine has only begun to start."""
        self._names.add(settings.name)
        save_settings(settings)
        pid = launch_supervisor(settings.name, timeout_s=60.0).pid
        self.remember(pid)
        return pid

    def start(self, name: str = "t", **options: object) -> Engine:
        """A ready engine."""
        self.launch(self.settings(name, **options))  # type: ignore[arg-type]
        engine = connect(name)
        self.await_ready(engine)
        return engine

    def await_ready(self, engine: Engine, timeout_s: float = 60.0) -> EngineView:
        def is_ready() -> EngineView | None:
            view = engine.status()
            if view.state in ("failed", "exited"):
                raise AssertionError(f"start failed: {view.last_exit}\n{self.log(engine.name)}")
            return view if view.ready is not None and view.process is not None else None

        view = wait_until(is_ready, timeout_s, "ready")
        assert view is not None and view.process is not None
        self.remember(view.process.pid)
        return view

    def remember(self, pid: int) -> ProcessId:
        who = identify(pid)
        assert who is not None
        self._seen.append(who)
        return who

    def entry(self, name: str = "t") -> EngineEntry:
        return EngineEntry.read(name)

    def log(self, name: str = "t") -> str:
        paths = self.entry(name).paths
        files = (paths.engine_log, paths.supervisor_log)
        return "\n".join(path.read_text(errors="replace") for path in files if path.exists())

    def close(self) -> None:
        """KILL to what this rig started and to what that left behind, by identity."""
        for name in self._names:
            record = self.entry(name).record
            if record is not None:
                self._seen += [who for who in (record.supervisor, record.engine) if who is not None]
        sessions = {who.pid for who in self._seen}
        for who in self._seen:
            send_signal(who, signal.SIGKILL)
        for entry in os.listdir("/proc"):
            stat = read_stat(int(entry)) if entry.isdigit() else None
            left = identify(int(entry)) if stat is not None and stat.session in sessions else None
            if left is not None:
                send_signal(left, signal.SIGKILL)
        for who in self._seen:
            wait_until(lambda who=who: not is_alive(who), 10.0, f"end of {who}")  # type: ignore[misc]


@contextmanager
def rig_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """State and runtime directory below tmp_path."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("ENGINECTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ENGINECTL_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    rig = Rig(tmp_path)
    try:
        yield rig
    finally:
        rig.close()
