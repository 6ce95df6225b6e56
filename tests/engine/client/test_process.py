"""One child process seen through its pidfd: its end is described, and it can always be ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.client.process import UNKNOWN_EXIT, EngineProcess, StatusReader, error_line
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
Spawn = Callable[[str], EngineProcess]


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Runs Python code as a child in a session of its own, with a status pipe that it knows as fd STATUS."""
    processes: list[EngineProcess] = []

    def start(code: str) -> EngineProcess:
        status_read, status_write = os.pipe()
        death_read, death_write = os.pipe()
        log = tmp_path / "log"
        with log.open("ab") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-S", "-c", code.replace("STATUS", str(status_write))],
                stderr=stderr, pass_fds=(status_write, death_read), start_new_session=True,
            )  # fmt: skip
        os.close(status_write)
        os.close(death_read)

        def reap() -> None:
            child.wait(2)

        process = EngineProcess(child.pid, reap, StatusReader(status_read), death_write, log)
        processes.append(process)
        return process

    yield start
    for process in processes:
        assert process.stop(0.0, 5.0)
        process.close()


def test_an_exit_status_and_a_signal_are_told_apart(spawn: Spawn) -> None:
    left, killed = spawn("raise SystemExit(3)"), spawn("import time; time.sleep(60)")
    assert killed.exit_status() is None and "is still there" in killed.describe_end()
    killed.send_signal(signal.SIGKILL)
    assert left.wait(5) and killed.wait(5)
    assert (left.exit_status(), killed.exit_status()) == (3, -9)
    assert "ended with exit status 3" in left.describe_end()
    assert f"engine process {killed.pid} was killed by SIGKILL" in killed.describe_end()


def test_what_it_reported_is_the_cause_and_the_phase_is_kept(spawn: Spawn) -> None:
    lines = [
        {"phase": "load weights", "event": "begin", "detail": "", "t": 1.0},
        {"phase": "load weights", "event": "failed", "error": "ModelError: no shard", "detail": "...", "t": 2.0},
    ]
    text = "not a status line\n" + "".join(json.dumps(line) + "\n" for line in lines)
    process = spawn(f"import os; os.write(STATUS, {text.encode()!r}); raise SystemExit(1)")
    assert process.wait(5)
    assert process.cause() == "ModelError: no shard"
    assert process.status.phase == "load weights" and not process.status.is_open
    assert process.status.failure is not None and process.status.failure.phase == "load weights"
    assert process.describe_end().endswith("ended with exit status 1: ModelError: no shard")


def test_without_a_report_the_last_error_line_of_the_log_is_the_cause(spawn: Spawn) -> None:
    process = spawn("raise KeyError('lost')")
    assert process.wait(5)
    assert process.cause() == "KeyError: 'lost'"


def test_a_log_without_errors_or_without_a_file_names_no_cause(tmp_path: Path) -> None:
    assert error_line(tmp_path / "missing") == ""
    (tmp_path / "log").write_text("all is well\n")
    assert error_line(tmp_path / "log") == ""


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(60)",
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    ],
    ids=["willing", "deaf", "stopped"],
)
def test_stop_ends_it_whatever_it_does(spawn: Spawn, code: str) -> None:
    process = spawn(code)
    assert process.stop(0.2, 5.0)
    assert process.exit_status() in (-15, -9)
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)  # reaped


def test_stop_takes_the_rest_of_its_session_along(spawn: Spawn, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    code = f"import subprocess, time; p = subprocess.Popen(['sleep', '60']); open({str(pid_file)!r}, 'w').write(str(p.pid)); time.sleep(60)"  # noqa: E501
    process = spawn(code)
    grandchild = int(wait_until(lambda: pid_file.exists() and pid_file.read_text(), 5.0, "the grandchild's pid"))
    assert process.stop(1.0, 5.0)

    def is_gone() -> bool:
        try:
            return Path(f"/proc/{grandchild}/stat").read_text().split()[2] == "Z"
        except FileNotFoundError:
            return True

    wait_until(is_gone, 5.0, "the grandchild is gone")


def test_an_end_that_somebody_else_reaped_is_still_an_end(spawn: Spawn) -> None:
    process = spawn("raise SystemExit(3)")
    os.waitpid(process.pid, 0)
    assert process.wait(5) and process.exit_status() == UNKNOWN_EXIT
    assert "exit status unknown" in process.describe_end()


def test_a_status_pipe_that_stays_silent_does_not_block(spawn: Spawn) -> None:
    process = spawn("import time; time.sleep(60)")
    process.status.read()  # would never return
    assert process.status.is_open and process.status.phase == "spawn"
