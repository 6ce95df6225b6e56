"""Starts that fail: each ends at once, says where and why, and leaves nothing."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
import threading
from pathlib import Path

import pytest

from engine.client.launcher import Launch
from engine.client.start import Transport, private_directory, start_engine
from engine.errors import EngineStartError
from tests.engine.client.conftest import Configure, engine_children
from tests.support.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("sockets")]


@pytest.mark.parametrize("launch", ["command", "process"])
def test_a_bad_model_directory_names_phase_and_cause(configure: Configure, tmp_path: Path, launch: Launch) -> None:
    with pytest.raises(EngineStartError) as caught:
        start_engine(configure(model=str(tmp_path)), launch=launch, start_timeout_s=60)
    assert caught.value.phase == "load weights"
    assert caught.value.cause.startswith("ModelError:") and str(tmp_path) in caught.value.cause
    assert caught.value.cause in str(caught.value) and "load weights" in str(caught.value)


def test_a_process_that_ends_without_a_word_is_noticed(configure: Configure) -> None:
    with pytest.raises(EngineStartError, match="ended with exit status 41") as caught:
        start_engine(configure("DiesLoading"), start_timeout_s=60)
    assert caught.value.phase == "load weights"


def test_a_kill_while_loading_is_noticed(configure: Configure) -> None:
    def kill_it() -> None:
        (pid,) = wait_until(engine_children, 30.0, "an engine process")
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_it)
    killer.start()
    with pytest.raises(EngineStartError, match="was killed by SIGKILL"):
        start_engine(configure("NeverLoads"), start_timeout_s=60)
    killer.join()


def test_a_start_past_its_deadline_is_ended(configure: Configure) -> None:
    with pytest.raises(EngineStartError, match=r"not ready within 2 s") as caught:
        start_engine(configure("NeverLoads"), start_timeout_s=2)
    assert caught.value.phase in ("load weights", "handshake", "spawn")


def test_a_start_that_is_given_up_is_ended(configure: Configure) -> None:
    with pytest.raises(EngineStartError, match="given up"):
        start_engine(configure("NeverLoads"), given_up=lambda: bool(engine_children()))


def test_an_unknown_executor_is_a_failed_start(configure: Configure) -> None:
    with pytest.raises(EngineStartError) as caught:
        start_engine(configure("no.such.module:Executor"), start_timeout_s=60)
    assert "no" in caught.value.cause


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_a_started_engine_and_its_log(
    configure: Configure, sockets: Path, tmp_path: Path, transport: Transport
) -> None:
    log = tmp_path / "engine.log"
    started = start_engine(configure(), transport=transport, log_path=log, start_timeout_s=60)
    try:
        assert started.ready.num_gpu_blocks == 1024 and started.identity == b"\x00\x00"
        assert oct(started.directory.stat().st_mode & 0o777) == "0o700"
        wanted = {"input.sock", "output.sock"} if transport == "ipc" else set()
        assert {path.name for path in started.directory.iterdir()} == wanted
    finally:
        started.abandon()
    assert log.stat().st_size > 0


def test_a_path_too_long_for_sockets_is_avoided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    directory = private_directory()
    try:
        assert list(long.iterdir()) == []
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(directory / "handshake.sock"))
        (directory / "handshake.sock").unlink()
    finally:
        directory.rmdir()
