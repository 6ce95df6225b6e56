"""Engines that these tests own: a tiny model, a private place for sockets, and a check that nothing is left there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from engine.client import EngineConfig
from tests.support.tiny_model import make_tiny_model
from tests.support.wait import wait_until


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Engines started here use one torch thread: several of them share few cores."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    yield
    if before is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = before


@pytest.fixture
def sockets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where clients put their private directories. Afterwards it is empty, and no engine process of ours is left."""
    place = tmp_path_factory.mktemp("s")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []
    wait_until(lambda: not engine_children(), 2.0, "our engine processes are gone")


def engine_children() -> list[int]:
    """Pids of engines below this process: by command line, or by multiprocessing's spawn."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            line = " ".join(child.cmdline())
        except psutil.NoSuchProcess:
            continue
        if ("-m engine" in line or "multiprocessing.spawn" in line) and "resource_tracker" not in line:
            found.append(child.pid)
    return found


Configure = Callable[..., EngineConfig]


@pytest.fixture
def configure(tiny_model: Path) -> Configure:
    """Settings for an engine on the tiny model; executor null unless said otherwise."""

    def make(executor: str = "null", **settings: object) -> EngineConfig:
        if executor[0].isupper():
            executor = f"tests.engine.client.executors:{executor}"
        given = {"model": str(tiny_model), "executor": executor, "num_gpu_blocks": 1024, **settings}
        return EngineConfig(**given)  # type: ignore[arg-type]

    return make
