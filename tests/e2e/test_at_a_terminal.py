"""What only a person at a terminal sees of a real engine: questions, a start being drawn, and `top` through the life
and the death of what it shows."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.enginectl.top.screen import Screen
from tests.support.ctl import PACED, Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
CTRL_C = b"\x03"


def at(ctl: Ctl, *words: str, columns: int = 100, rows: int = 32, **environ: str) -> Screen:
    return Screen(["-m", "enginectl", *words], columns=columns, rows=rows, env=ctl.env | environ, cwd=str(ctl.base))


def test_a_stop_says_how_many_it_ends_and_the_default_is_no(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    child = ctl.generate()
    ctl.wait_running(1)
    with at(ctl, "stop", "t") as screen:
        screen.wait_for("1 request", "[y/N]")
        screen.type(b"\n")
        assert screen.end(30) == 6
    assert len(ctl.requests()) == 1
    with at(ctl, "stop", "t", "--grace", "0s") as screen:
        screen.wait_for("[y/N]")
        screen.type(CTRL_C)
        assert screen.end(30) == 130
    assert ctl.ok("status", "t", "-p", "state").out == "busy\n"
    with at(ctl, "stop", "t", "--grace", "0s") as screen:
        screen.wait_for("[y/N]")
        screen.type(b"y\n")
        screen.wait_for("t  stopped in ")
        assert screen.end(30) == 0
    assert child.wait(20) == 1


def test_a_start_is_drawn_and_ctrl_c_leaves_it(ctl: Ctl) -> None:
    words = ("start", "t", "--model", str(ctl.make_model()), "--set", f"executor={PACED}")
    with at(ctl, *words, PACED_LOAD_S="5") as screen:
        screen.wait_for("handshake", "load weights", "Ctrl-C detaches")
        screen.type(CTRL_C)
        screen.wait_for("goes on starting")
        assert screen.end(30) == 130
    ctl.ok("wait", "t", "--for", "ready", "--timeout", "60s")


def test_top_follows_a_start_and_shows_a_death(ctl: Ctl) -> None:
    words = ("start", "t", "--model", str(ctl.make_model()), "--set", f"executor={PACED}", "-d")
    ctl.ok(*words, PACED_LOAD_S="4", PACED_STEP_MS="10")
    with at(ctl, "top", "t") as screen:
        screen.wait_for("load weights")
        ctl.ok("wait", "t", "--for", "ready", "--timeout", "40s")
        child = ctl.generate()
        (request,) = ctl.wait_running(1)
        screen.wait_for(request["external_id"])
        os.kill(ctl.record()["engine"]["pid"], signal.SIGKILL)
        screen.wait_for("engine failed", "signal 9 KILL", timeout_s=40)
        assert screen.process.poll() is None
        assert child.wait(20) == 9
        ctl.ok("start", "t")
        screen.wait_after("step timing", timeout_s=40)
        screen.type(b"q")
        assert screen.end() == 0
        assert screen.is_restored
        assert "enginectl top: t watched for" in screen.scrollback


CANCEL, CONFIRM = b"\r", b"\t\r"


def test_each_action_of_top_is_done_once_it_is_confirmed_and_never_before(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    child = ctl.generate()
    (request,) = ctl.wait_running(1)
    with at(ctl, "top", "t", "--allow-actions") as screen:
        screen.wait_for(request["external_id"])
        for key, question in ((b"a", "Abort request"), (b"D", "Drain?"), (b"C", "Cordon"), (b"x", "Dump the stacks")):
            screen.press(key, question)
            screen.press(CANCEL, "cancelled")
        assert ctl.ok("status", "t", "-p", "state").out == "busy\n" and len(ctl.requests()) == 1
        assert not list(ctl.base.glob("stacks-*"))
        screen.press(b"x" + CONFIRM, "stacks are in", 20.0)
        assert "run_busy_loop" in next(ctl.base.glob("stacks-t-*.txt")).read_text()
        screen.press(b"C" + CONFIRM, "cordoned", 20.0)
        wait_until(lambda: ctl.ok("status", "t", "-p", "cordoned").out == "true\n", 10.0, "the cordon")
        screen.press(b"C" + CONFIRM, "uncordoned", 20.0)
        screen.press(b"D" + CONFIRM, "draining, 1 left", 20.0)
        assert ctl("generate", "x").code == 5
        screen.press(b"a" + CONFIRM, "aborted", 20.0)
        assert child.wait(20) == 1
        ctl.ok("wait", "t", "--for", "stopped", "--timeout", "30s")
        screen.type(b"q")
        assert screen.end() == 0
        assert screen.is_restored


def test_letters_typed_into_a_question_are_no_keys_and_y_answers_it(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    child = ctl.generate()
    (request,) = ctl.wait_running(1)
    with at(ctl, "top", "t", "--allow-actions", columns=80, rows=24) as screen:
        screen.wait_for(request["external_id"])
        screen.press(b"a", ">Cancel<")
        screen.press(b"ll" + b"\r", "cancelled")
        screen.press(b"defaulty" + b"\r", "cancelled")
        assert len(ctl.requests()) == 1
        screen.press(b"a", ">Cancel<")
        screen.press(b"y", "aborted", 20.0)
        assert child.wait(20) == 1
        screen.type(b"q")
        assert screen.end() == 0


def test_after_a_drain_top_shows_an_end_and_nothing_that_looks_alive(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    child = ctl.generate(tokens=150)
    ctl.wait_running(1)
    with at(ctl, "top", "t", columns=80, rows=24) as screen:
        screen.wait_for("running")
        ctl.ok("drain", "t", "--grace", "60s")
        assert child.wait(20) == 0
        shown = wait_until(lambda: "exited" in frame_of(screen, 24) and frame_of(screen, 24), 20.0, "the end")
        for word in ("code 0", "queues, last", "none in flight"):
            assert word in shown
        screen.type(b"q")
        assert screen.end() == 0
        assert "ended while" not in screen.output.decode()


def test_the_first_row_of_requests_is_the_hog_and_80_columns_say_why(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="20")
    children = [ctl.generate(tokens=400) for _ in range(3)] + [ctl.generate(tokens=1900)]
    wait_until(lambda: any(row["is_hog"] for row in ctl.requests()), 20.0, "a hog")
    (row,) = ctl.ok("requests", "t", "-n", "1", "-o", "json").document["items"]
    assert row["is_hog"] and row["max_tokens"] == 1900
    with at(ctl, "requests", "t", "-n", "1", columns=80, rows=24) as screen:
        assert screen.end() == 0
        shown = screen.output.decode()
        assert row["external_id"] in shown and "hog: " in shown
        assert "not shown: " in shown
        assert max(map(len, shown.splitlines())) <= 80
    ctl.ok("abort", "-e", "t", "--all", "--yes")
    for child in children:
        child.wait(20)


PARTS = {
    "events": "events ─", "split": "execute ", "histogram": "10-15 ", "process": "process ─",
    "throughput": "throughput ─", "sparklines": "▁",
}  # fmt: skip
"""What a short screen gives up, first to last, and how each is known."""


def test_a_screen_that_shrinks_loses_its_parts_one_after_the_other(served: Ctl) -> None:
    served.ok("generate", "x", "--max-tokens", "30", "--ignore-eos")
    with at(served, "top", "t", columns=100, rows=40) as screen:
        wait_until(lambda: all(sign in frame_of(screen, 40) for sign in PARTS.values()), 20.0, "all its parts")
        assert "t · idle" in frame_of(screen, 40)
        lost: list[str] = []
        for rows in range(30, 9, -1):
            screen.resize(100, rows)
            shown = wait_until(lambda rows=rows: frame_of(screen, rows), 20.0, f"a frame of {rows} rows")  # type: ignore[misc]
            assert "requests 0" in shown and "now " in shown
            gone = [part for part, sign in PARTS.items() if sign not in shown]
            assert gone[: len(lost)] == lost and gone == list(PARTS)[: len(gone)], (rows, gone)
            lost = gone
        assert lost == list(PARTS)
        for columns, rows in ((39, 30), (100, 9)):
            screen.resize(columns, rows)
            wait_until(lambda rows=rows: "t idle r0 w0" in frame_of(screen, rows), 20.0, "one line")  # type: ignore[misc]
            assert "requests 0" not in frame_of(screen, rows)
        screen.type(b"q")
        assert screen.end() == 0
        assert screen.is_restored


def frame_of(screen: Screen, rows: int) -> str:
    """The last frame, once it is whole and has so many rows; empty before."""
    *_, last = re.sub(r"\x1b\[[\d;]*m", "", screen.output.decode(errors="ignore")).split("\x1b[H")
    return last if last.count("\n") == rows - 1 else ""
