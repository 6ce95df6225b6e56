from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.session import Session, parse_stat
from tests.support.wait import wait_until

FAMILY = """
import signal, subprocess, sys, time
child = "import signal, sys, time; {ignore}; print('up', flush=True); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", child])
time.sleep(600)
"""


def family(tmp_path: Path, ignore: str) -> Session:
    """A parent and a child that is up."""
    session = Session(
        [sys.executable, "-c", FAMILY.replace("{ignore}", ignore)], os.environ, tmp_path / "log", tmp_path
    )
    wait_until(lambda: (tmp_path / "log").read_text().startswith("up"), what="the child is up")
    return session


def test_the_stat_of_a_process_with_an_odd_name() -> None:
    fields = [
        "S",
        "1",
        "7",
        "70",
        "0",
        "-1",
        "0",
        "0",
        "0",
        "0",
        "0",
        "150",
        "50",
        "0",
        "0",
        "20",
        "0",
        "1",
        "0",
        "9",
        "5000",
        "3",
    ]
    member = parse_stat("42 (a) b (c) " + " ".join(fields))
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert (member.pid, member.session, member.state) == (42, 70, "S")
    assert (member.cpu_s, member.rss_bytes) == (200 / ticks, 3 * page)


@pytest.mark.thread
def test_a_session_counts_its_children_and_ends_them(tmp_path: Path) -> None:
    session = family(tmp_path, "pass")
    assert len(session.members()) == 2
    assert session.rss_bytes() > 4 * 1024**2
    assert session.stop(10.0) is not None
    assert not session.members()


@pytest.mark.thread
def test_who_does_not_listen_to_term_is_killed_and_told_apart(tmp_path: Path) -> None:
    session = family(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    assert session.stop(0.3) is None
    assert not session.members()
