from __future__ import annotations

import pytest

from enginectl import text
from enginectl.control import ExitInfo


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0.00s"),
        (0.21, "0.21s"),
        (0.999, "1.0s"),
        (58.34, "58.3s"),
        (99.97, "1m39s"),
        (125, "2m05s"),
        (7865, "2h11m"),
        (273600, "3d04h"),
    ],
)
def test_seconds(value: float | None, shown: str) -> None:
    assert text.seconds(value) == shown


def test_what_is_not_known_is_a_dash_never_zero() -> None:
    figures = (text.number(None), text.size(None), text.milliseconds(None), text.percent(None), text.seconds(None))
    assert set(figures) == {"-"}
    assert (text.number(0), text.percent(0.0), text.milliseconds(0.0)) == ("0", "0", "0.0ms")


def test_sizes_and_numbers() -> None:
    assert text.size(15.2 * 1024**3) == "15.2 GiB"
    assert text.size(512) == "512 B"
    assert text.number(587264) == "587,264"
    assert text.clock(58.9) == "0:58"
    assert text.count(1, "request") == "1 request"
    assert text.count(38, "request") == "38 requests"


def test_ends_are_named() -> None:
    assert text.exit_text(ExitInfo(signal="SIGKILL")) == "signal 9 KILL"
    assert text.exit_text(ExitInfo(signal="SEGV")) == "signal 11 SEGV"
    assert text.exit_text(ExitInfo(code=1)) == "exit 1"
    assert text.exit_text(None) == ""
    assert text.ago(100.0, now=400.0) == "5m ago"
    assert text.ago(0.0) == ""


ROWS = [["qwen", "busy", "41873", "qwen2.5-7b-instruct-with-a-very-long-name"], ["t", "exited", "-", "tiny"]]
HEADERS = ("NAME", "STATE", "PID", "MODEL")


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    lines = text.table(HEADERS, ROWS, left=(0, 1, 3))
    assert lines[0] == "NAME  STATE     PID  MODEL"
    assert lines[2] == "t     exited      -  tiny"


def test_a_table_is_never_cut_off_a_terminal() -> None:
    assert ROWS[0][3] in text.table(HEADERS, ROWS, left=(0, 1, 3))[1]


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_table_fits_its_terminal(width: int) -> None:
    lines = text.table(HEADERS, ROWS, left=(0, 1, 3), width=width, shrink=3)
    assert max(len(line) for line in lines) <= width
    assert lines[0].startswith("NAME  STATE")


def test_columns_are_given_up_before_the_one_that_shrinks() -> None:
    narrow = text.table(HEADERS, ROWS, left=(0, 1, 3), width=24, shrink=3, drop=(3, 2))
    assert narrow[0].split() == ["NAME", "STATE", "PID"]
    assert text.table(HEADERS, ROWS, left=(0, 1, 3), width=200, drop=(3,))[0].endswith("MODEL")


def test_text_from_others_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in text.printable("a\x1b[2Jb\x9bc\n")
    assert text.one_line("two\nlines\x07") == "two lines�"


def test_a_column_gives_way_to_its_least_before_others_go() -> None:
    rows = [["gen-1", "7", "a long reason why it waits"]]
    lines = text.table(("ID", "N", "NOTE"), rows, left=(0, 2), width=22, shrink=2, drop=(1,), least=10)
    assert lines == ["ID     N  NOTE", "gen-1  7  a long reas…"]
    lines = text.table(("ID", "N", "NOTE"), rows, left=(0, 2), width=18, shrink=2, drop=(1,), least=10)
    assert lines == ["ID     NOTE", "gen-1  a long rea…"]


@pytest.mark.parametrize("width", [20, 40, 80])
def test_parts_are_never_broken_in_two(width: int) -> None:
    parts = [f"gen-{n:08x}" for n in range(9)]
    lines = text.wrap(parts, width)
    assert max(map(len, lines)) <= width
    assert [part for line in lines for part in line.strip().rstrip(",").split(", ")] == parts
    assert text.wrap(parts, None) == ["  " + ", ".join(parts)]
    assert text.wrap([], width) == []
