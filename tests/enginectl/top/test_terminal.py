"""The real command on a real pseudo-terminal: drawn, operated, resized, ended in every way, and always given back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from enginectl.control import ErrorInfo
from tests.enginectl.top import samples
from tests.enginectl.top.peer import Peer
from tests.enginectl.top.screen import ENTER, Screen
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
TOP = ["-m", "enginectl", "top", "qwen"]


def run_plain(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *TOP, *args], capture_output=True, timeout=60, env={**os.environ, **(env or {})}, check=False
    )


@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x03", 0)])
def test_keys_end_it(peer: Peer, key: bytes, code: int) -> None:
    with Screen(TOP) as screen:
        screen.wait_for("step timing", "cmpl-01f")
        screen.type(key)
        assert screen.end() == code
        assert screen.is_restored
        assert "enginectl top: qwen watched for" in screen.scrollback


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 0), (signal.SIGQUIT, -signal.SIGQUIT)],
)
def test_signals_end_it(peer: Peer, number: int, code: int) -> None:
    with Screen(TOP) as screen:
        screen.wait_for("step timing")
        screen.signal(number)
        assert screen.end() == code
        assert screen.is_restored


def test_an_exception_while_drawing_gives_the_terminal_back(peer: Peer) -> None:
    broken = (
        "import enginectl.top.app as app; real, turns = app.render, []\n"
        "def render(*a, **k):\n"
        "    turns.append(1)\n"
        "    if len(turns) > 1: raise ZeroDivisionError('drawn badly')\n"
        "    return real(*a, **k)\n"
        "app.render = render\n"
        "from enginectl.cli import main; main(['top', 'qwen'])"
    )
    with Screen(["-c", broken]) as screen:
        assert screen.end(30) == 125
        assert ENTER in screen.output
        assert screen.is_restored
        assert "drawn badly" in screen.scrollback


HANG_UP = """
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
seen = b""
while b"step timing" not in seen:
    seen += os.read(fd, 65536)
print(pid, flush=True)
"""
"""Ends as a window that is closed does, while the program in it draws."""


def test_the_terminal_that_goes_away_ends_it(peer: Peer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANG_UP, *TOP], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    )
    wait_until(lambda: _state(int(done.stdout)) in ("Z", ""), what="its end")


def test_a_second_signal_gives_the_terminal_back_where_the_loop_is_stuck(peer: Peer) -> None:
    stuck = (
        "import time; import enginectl.top.app as app; real, turns = app.render, []\n"
        "def render(*a, **k):\n"
        "    turns.append(1)\n"
        "    if len(turns) > 1: print('is', 'stuck', flush=True); time.sleep(300)\n"
        "    return real(*a, **k)\n"
        "app.render = render\n"
        "from enginectl.cli import main; main(['top', 'qwen'])"
    )
    with Screen(["-c", stuck]) as screen:
        screen.wait_for("is stuck")
        screen.signal(signal.SIGTERM)
        wait_until(lambda: not _pending(screen.process.pid, signal.SIGTERM), what="the first taken")
        screen.signal(signal.SIGTERM)
        assert screen.end() == 143
        assert screen.is_restored


def _pending(pid: int, number: int) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(int(line.split()[1], 16) >> (number - 1) & 1 for line in lines if line.startswith(("SigPnd", "ShdPnd")))


@pytest.mark.parametrize("by_key", [True, False], ids=["key", "signal"])
def test_suspend_and_continue(peer: Peer, by_key: bool) -> None:
    with Screen(TOP, under_shell=True) as screen:
        screen.wait_for("step timing")
        if by_key:
            screen.type(b"\x1a")
        else:
            os.kill(screen.job, signal.SIGTSTP)
        wait_until(lambda: _state(screen.job) == "T", what="a stopped process")
        wait_until(lambda: screen.is_restored, what="all that it wrote before it stopped")
        entered, start = screen.output.count(ENTER), len(screen.output)
        screen.type(b"\n")
        wait_until(lambda: screen.output.count(ENTER) == entered + 1, what="the screen taken again")
        screen.wait_after("step timing", start=start)
        screen.type(b"q")
        assert screen.end() == 0
        assert screen.is_restored


def test_where_nobody_could_continue_it_a_stop_is_ignored(peer: Peer) -> None:
    with Screen(TOP) as screen:
        screen.wait_for("step timing")
        entered = screen.output.count(ENTER)
        screen.type(b"\x1a")
        wait_until(lambda: screen.output.count(ENTER) == entered + 1, what="the screen taken again")
        screen.type(b"q")
        assert screen.end() == 0
        assert screen.is_restored


def test_stopped_from_outside_it_comes_back_whole(peer: Peer) -> None:
    with Screen([*TOP, "--interval", "10"]) as screen:
        screen.wait_for("step timing")
        screen.signal(signal.SIGSTOP)
        wait_until(lambda: _state(screen.process.pid) == "T", what="a stopped process")
        termios.tcsetattr(screen.slave, termios.TCSANOW, screen.modes)  # as a shell does
        start = len(screen.output)
        screen.signal(signal.SIGCONT)
        wait_until(lambda: b"step timing" in screen.output[start:], what="the picture again")
        screen.type(b"q")
        assert screen.end() == 0
        assert screen.is_restored


def test_what_ends_it_while_it_is_stopped_ends_it_when_it_goes_on(peer: Peer) -> None:
    with Screen(TOP, under_shell=True) as screen:
        screen.wait_for("step timing")
        screen.type(b"\x1a")
        wait_until(lambda: _state(screen.job) == "T", what="a stopped process")
        os.kill(screen.job, signal.SIGTERM)
        screen.type(b"\n")
        assert screen.end() == 143
        assert screen.is_restored


def _state(pid: int) -> str:
    """Empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def test_keys_are_handled_at_once_and_redraw_only_on_change(peer: Peer) -> None:
    with Screen([*TOP, "--interval", "10"]) as screen:
        screen.wait_for("step timing")
        for key, word in (
            (b"?", "freeze the picture"),
            (b"?", "put back for want"),
            (b"?", "cmpl-01f"),
            (b"t", "youngest"),
            (b"\x1b", "cmpl-01f"),
            (b"/wait", "requests "),
            (b"\r", "filter: wait"),
            (b"\x1b[B", "› "),
            (b"a", "read-only: start top"),
        ):
            screen.press(key, word)
        size = len(screen.output)
        screen.press(b"ZZZ\x1b[<35;1;1Ms", "sort: id")
        assert len(screen.output) - size < 40_000
        screen.type(b"q")
        assert screen.end() == 0


def test_resizing_never_breaks_it(peer: Peer) -> None:
    with Screen(TOP) as screen:
        screen.wait_for("step timing")
        for turn in range(50):
            screen.resize(*((1, 1), (20, 5), (40, 10), (500, 200), (0, 0), (61, 17))[turn % 6])
        start = len(screen.output)
        screen.resize(120, 40)
        screen.wait_after("execute", start=start)
        screen.type(b"q")
        assert screen.end() == 0
        assert screen.is_restored


def test_a_supervisor_that_dies_is_shown_not_followed(peer: Peer) -> None:
    with Screen(TOP) as screen:
        screen.wait_for("step timing")
        peer.stop()
        screen.wait_for("unreachable: ", timeout_s=30)
        assert screen.process.poll() is None
        screen.type(b"q")
        assert screen.end() == 0
        assert screen.is_restored


def test_abort_asks_first(peer: Peer) -> None:
    with Screen([*TOP, "--allow-actions"]) as screen:
        screen.wait_for("cmpl-01f")
        screen.press(b"a", "Abort request cmpl-000")
        screen.press(b"\r", "cancelled")
        assert not any(verb == "abort" for verb, _ in peer.asked)
        screen.press(b"a\t\r", "cmpl-000-0-8a1f0945: aborted", 20.0)
        screen.type(b"q")
        assert screen.end() == 0


def test_a_dumb_terminal_gets_one_snapshot(peer: Peer) -> None:
    with Screen(TOP, env={"TERM": "dumb"}) as screen:
        assert screen.end(30) == 0
        assert b"\x1b" not in screen.output
        assert b"step timing" in screen.output


@pytest.mark.parametrize("env", [{"LANG": "C"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX"}])
def test_terminals_without_unicode_get_ascii(peer: Peer, env: dict[str, str]) -> None:
    with Screen(TOP, env={"LC_CTYPE": "", "LC_ALL": "", **env}) as screen:
        screen.wait_for("step timing", "execute")
        screen.type(b"q")
        assert screen.end() == 0
        assert screen.output.isascii()


def test_no_colour_means_none(peer: Peer) -> None:
    with Screen(TOP, env={"NO_COLOR": "1"}) as screen:
        screen.wait_for("step timing", "execute")
        screen.type(b"q")
        assert screen.end() == 0
        for code in (b"\x1b[31m", b"\x1b[32m", b"\x1b[33m", b"\x1b[36m", b"\x1b[1;36m"):
            assert code not in screen.output


def test_into_a_pipe_there_is_one_snapshot_whatever_the_colour_variable_says(peer: Peer) -> None:
    done = run_plain(env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert b"step timing" in done.stdout
    assert b"cmpl-01f" in done.stdout


def test_one_document(peer: Peer) -> None:
    done = run_plain("-o", "json")
    found = json.loads(done.stdout)
    assert found["schema"] == "enginectl/v1"
    assert found["kind"] == "Top"
    assert found["view"]["stats"]["step"]["p50_ms"] == 19.8
    assert len(found["requests"]) == 32


def test_a_stream_and_its_replay(peer: Peer, tmp_path: Path) -> None:
    done = run_plain("--stream", "-n", "2", "--interval", "0.25")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["seq"] for line in lines] == [1, 2]
    assert all(line["type"] == "snapshot" and line["ts"] > 1e9 for line in lines)
    (tmp_path / "f").write_bytes(done.stdout)
    paper = run_plain("--replay", str(tmp_path / "f"))
    assert b"cmpl-01f" in paper.stdout
    with Screen(["-m", "enginectl", "top", "--replay", str(tmp_path / "f")]) as screen:
        screen.wait_for("replay 1 of 2", "cmpl-01f")
        screen.press(b"]", "replay 2 of 2")
        screen.press(b"]", "the end of the recording")
        screen.press(b"[", "replay 1 of 2")
        screen.press(b"?", "step back and forth through what was recorded, or a replay")
        screen.press(b"L", "replay 2 of 2")
        screen.type(b"q")
        assert screen.end() == 0


def test_a_stream_into_a_closed_pipe_ends_quietly(peer: Peer) -> None:
    command = f"{sys.executable} -m enginectl top qwen --stream --interval 0.25 | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert json.loads(done.stdout)["type"] == "snapshot"
    assert done.stderr == b""


def test_usage_is_checked(peer: Peer) -> None:
    assert run_plain("--interval", "20").returncode == 2
    assert run_plain("-n", "3").returncode == 2
    assert run_plain("--replay", "/no/such/file").returncode == 2
    assert run_plain("--stream", "--replay", "/no/such/file").returncode == 2


def test_an_unknown_engine_is_not_found(peer: Peer) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "enginectl", "top", "qwem"], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 4
    assert b"did you mean 'qwen'" in done.stderr


def test_an_unreachable_engine_off_a_terminal_is_an_error(peer: Peer) -> None:
    peer.stop()
    done = run_plain()
    assert done.returncode == 69
    assert done.stdout == b""


def test_the_table_that_cannot_be_had_is_said(peer: Peer) -> None:
    peer.view = samples.view("stalled", reason="no turn of the loop for 12 s")
    peer.refuse["requests"] = ErrorInfo(id="E1304", message="the engine does not answer")
    done = run_plain()
    assert b"stalled: no turn of the loop for 12 s" in done.stdout
    assert b"the engine does not answer" in done.stdout
