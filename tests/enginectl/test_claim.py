"""One holder per name, whom the kernel names, and who needs no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from enginectl import claim
from enginectl.claim import BACKLOG, Claim, address_of, claim_holder
from enginectl.errors import Conflict
from enginectl.identity import identify, is_stopped
from tests.support.wait import wait_until

HOLD = """
import sys
from pathlib import Path
from enginectl.claim import Claim
claim = Claim(Path(sys.argv[1]))
claim.take()
print("held", flush=True)
input()
"""


def test_a_second_one_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    state = tmp_path / "engines" / "t"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert claim_holder(state) == other.pid
        with pytest.raises(Conflict, match=rf"pid {other.pid}"):
            Claim(state).take()
        os.kill(other.pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(identify(other.pid)), 5.0, "stopped")
        assert claim_holder(state) == other.pid
        other.kill()
    assert claim_holder(state) == 0
    mine = Claim(state)
    mine.take()
    assert claim_holder(state) == os.getpid()
    mine.release()


def test_another_spelling_of_a_directory_is_the_same_and_another_name_is_not(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert address_of(tmp_path / "link" / "t") == address_of(tmp_path / "real" / "t")
    assert address_of(tmp_path / "real" / "u") != address_of(tmp_path / "real" / "t")
    longest = tmp_path / ("d" * 200) / ("n" * 80)
    assert len(address_of(longest)) <= 107


def test_those_who_ask_do_not_fill_its_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "BACKLOG", 2)
    held = Claim(tmp_path / "t")
    held.take()
    for _ in range(20):
        assert claim_holder(tmp_path / "t") == os.getpid()
        held.answer()
    held.answer()  # nobody asked
    held.release()
    assert BACKLOG > 1000


def test_the_claim_of_another_user_means_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Claim(tmp_path / "t")
    held.take()
    ours = address_of(tmp_path / "t")
    monkeypatch.setattr(claim, "address_of", lambda state: ours)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert claim_holder(tmp_path / "t") == 0
    second = Claim(tmp_path / "t")
    second.take()
    assert second.fd == -1
    held.release()
