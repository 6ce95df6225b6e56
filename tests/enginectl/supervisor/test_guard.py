"""The guard with real processes: statuses passed on, groups ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from enginectl.identity import read_stat, session_members
from enginectl.supervisor import vllm
from tests.support.wait import wait_until

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(999)"


class Guarded:
    def __init__(self, *command: str, term_s: float = 0.3) -> None:
        read_fd, self.death_fd = os.pipe()
        self.process = subprocess.Popen(
            vllm.guarded(list(command), read_fd, term_s), pass_fds=[read_fd], start_new_session=True,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        os.close(read_fd)

    def members(self) -> list[int]:
        return [pid for pid in session_members(self.process.pid) if pid != self.process.pid]

    def close(self) -> None:
        for pid in [*self.members(), self.process.pid]:
            if read_stat(pid) is not None:
                os.kill(pid, signal.SIGKILL)
        self.process.communicate(timeout=10)
        if self.death_fd >= 0:
            os.close(self.death_fd)


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(7)", 7), ("", 0), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_the_commands_status_is_its_own(code: str, status: int) -> None:
    guarded = Guarded(sys.executable, "-S", "-c", code)
    assert guarded.process.wait(10) == status
    guarded.close()


def test_a_command_that_cannot_be_run_is_said() -> None:
    guarded = Guarded("/no/such/program")
    assert guarded.process.wait(10) == 127
    assert guarded.process.stderr is not None and b"ERROR cannot run /no/such/program" in guarded.process.stderr.read()
    guarded.close()


def test_what_the_command_left_behind_is_ended(tmp_path: Path) -> None:
    script = tmp_path / "leaves.py"
    script.write_text(f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-S', '-c', {STUBBORN!r}])\n")
    guarded = Guarded(sys.executable, "-S", str(script))
    assert guarded.process.wait(15) == 0
    assert not guarded.members()
    guarded.close()


@pytest.mark.parametrize("stubborn", [True, False])
def test_the_end_of_the_pipe_ends_everything(stubborn: bool) -> None:
    guarded = Guarded(sys.executable, "-S", "-c", STUBBORN if stubborn else "import time; time.sleep(999)")
    wait_until(lambda: guarded.members(), 10.0, "the command runs")
    os.close(guarded.death_fd)
    guarded.death_fd = -1
    assert guarded.process.wait(15) == 1
    assert not guarded.members()
    guarded.close()


def test_term_is_passed_on() -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); "
        "print(flush=True); time.sleep(999)"
    )
    read_fd, write_fd = os.pipe()
    guarded = Guarded("/bin/sh", "-c", f"exec {sys.executable} -S -c '{code}' >/proc/{os.getpid()}/fd/{write_fd}")
    assert os.read(read_fd, 1)
    os.kill(guarded.process.pid, signal.SIGTERM)
    assert guarded.process.wait(10) == 5
    guarded.close()
    os.close(read_fd)
    os.close(write_fd)
