"""Directories of their own for each test, short enough for sockets, and a peer that behaves like a supervisor."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.enginectl.top.peer import Peer, register


@pytest.fixture
def engine_dirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """State below tmp_path; sockets in a short directory, because their paths are limited to 107 bytes."""
    run = Path(tempfile.mkdtemp(prefix="top-"))
    monkeypatch.setenv("ENGINECTL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ENGINECTL_RUNTIME_DIR", str(run))
    for name in ("ENGINECTL_ENGINE", "ENGINECTL_OUTPUT", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path
    shutil.rmtree(run, ignore_errors=True)


@pytest.fixture
def peer(engine_dirs: Path) -> Iterator[Peer]:
    found = Peer(register()).start()
    yield found
    found.stop()
