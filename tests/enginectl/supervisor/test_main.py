"""The process itself: how it begins, how it refuses, how it runs in the foreground."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.time_slice import COMPUTING_SLICE_NS, SLICE_NS, shorten_time_slice, time_slice_ns
from enginectl.client import Engine, connect
from enginectl.errors import BadRuntimeDir, CtlError, UsageError
from enginectl.identity import read_stat
from enginectl.launch import launch_supervisor
from enginectl.rundir import make_state_dir, save_settings
from tests.support.rig import REPOSITORY, Rig
from tests.support.wait import wait_until


def test_without_settings_it_says_so(rig: Rig) -> None:
    with pytest.raises(UsageError, match="no settings") as caught:
        launch_supervisor("unknown", timeout_s=60.0)
    assert "enginectl start unknown" in caught.value.try_[0]


def test_settings_that_are_garbage_are_refused(rig: Rig) -> None:
    make_state_dir("t").settings.write_text('{"name": "t", "config": 5}')
    with pytest.raises(UsageError):
        launch_supervisor("t", timeout_s=60.0)


def test_a_log_that_cannot_be_written_is_said_at_the_start(rig: Rig) -> None:
    save_settings(rig.settings("t"))
    rig.entry().paths.engine_log.mkdir()
    with pytest.raises(BadRuntimeDir, match=r"cannot write log .*engine\.log"):
        launch_supervisor("t", timeout_s=60.0)


def test_a_runtime_directory_that_is_too_long_names_limit_and_setting(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_settings(rig.settings("t"))
    monkeypatch.setenv("ENGINECTL_RUNTIME_DIR", str(rig.root / ("d" * 110)))
    with pytest.raises(BadRuntimeDir) as caught:
        launch_supervisor("t", timeout_s=60.0)
    assert "107" in caught.value.cause and "ENGINECTL_RUNTIME_DIR" in caught.value.try_[0]
    assert caught.value.exit == 2


def test_a_name_of_80_characters_works(rig: Rig) -> None:
    name = "n" * 80
    engine = rig.start(name)
    assert engine.status().name == name
    engine.stop()


def test_sockets_are_private_whatever_the_umask(rig: Rig) -> None:
    before = os.umask(0)
    try:
        rig.launch(rig.settings("t"))
    finally:
        os.umask(before)
    base = rig.entry().runtime_dir
    assert stat.S_IMODE(base.stat().st_mode) == 0o700
    for path in rig.entry().paths.state.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_in_the_foreground_logs_go_to_stderr_and_an_interrupt_ends_it(rig: Rig) -> None:
    save_settings(rig.settings("t"))
    command = [sys.executable, "-m", "enginectl.supervisor", "--name", "t", "--foreground"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, cwd=REPOSITORY, text=True) as child:
        who = rig.remember(child.pid)
        engine = wait_until(lambda: _try_connect("t"), 30.0, "the control socket")
        assert engine is not None
        rig.await_ready(engine)
        mine = read_stat(who.pid)
        assert mine is not None and mine.session == os.getsid(0)
        child.send_signal(signal.SIGINT)
        _, text = child.communicate(timeout=30)
    assert child.returncode == 0
    assert "ready: after" in text and "load weights" in text and "exit 0" in text


def test_it_runs_as_soon_as_it_wakes_and_its_engine_has_the_slice_of_who_computes(rig: Rig) -> None:
    engine = rig.start()
    view = engine.status()
    assert view.supervisor is not None and view.process is not None
    found = {pid: time_slice_ns(pid) for pid in (view.supervisor.pid, view.process.pid)}
    usual = time_slice_ns()
    with ThreadPoolExecutor(1) as pool:
        is_possible = pool.submit(shorten_time_slice).result() and os.getpriority(os.PRIO_PROCESS, 0) >= 0
    assert list(found.values()) == ([SLICE_NS, COMPUTING_SLICE_NS] if is_possible else [usual, usual])
    threads = [int(entry) for entry in os.listdir(f"/proc/{view.supervisor.pid}/task")]
    assert len(threads) >= 3
    if is_possible:
        assert sorted(time_slice_ns(thread) or 0 for thread in threads)[2] == SLICE_NS  # zmq's own two as well


def test_a_failed_start_is_exit_1(rig: Rig) -> None:
    save_settings(rig.settings("t", model="/nonexistent"))
    command = [sys.executable, "-m", "enginectl.supervisor", "--name", "t", "--foreground"]
    done = subprocess.run(command, capture_output=True, cwd=REPOSITORY, text=True, timeout=60)
    assert done.returncode == 1
    view = rig.entry().view()
    assert view.state == "failed" and view.last_exit is not None and "/nonexistent" in view.last_exit.cause


def _try_connect(name: str) -> Engine | None:
    try:
        return connect(name)
    except CtlError:
        return None
