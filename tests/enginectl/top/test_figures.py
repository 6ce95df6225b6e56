"""Numbers as text."""

from __future__ import annotations

import pytest

from enginectl.top import figures


def test_what_is_not_known_is_a_dash() -> None:
    for write in (figures.count, figures.short, figures.percent, figures.milliseconds, figures.seconds, figures.size):
        assert write(None) == "-"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (figures.count(1912), "1,912"),
        (figures.count(587_264), "587k"),
        (figures.count(4_500_000), "4.5M"),
        (figures.short(6123), "6.1k"),
        (figures.short(912), "912"),
        (figures.seconds(0.61), "0.61s"),
        (figures.seconds(71.2), "71.2s"),
        (figures.span(7873), "2h11m"),
        (figures.span(125), "2m05s"),
        (figures.span(-5), "0s"),
        (figures.size(21 << 20), "21MB"),
        (figures.size(3 << 30), "3.0GiB"),
        (figures.percent(0.614), "61%"),
        (figures.percent(1.7), "100%"),
        (figures.rate(-3.0), "0"),
        (figures.rate(6.2), "6.2"),
        (figures.age(0.41), "0.4s"),
        (figures.milliseconds(19.84), "19.8"),
    ],
)
def test_figures(text: str, expected: str) -> None:
    assert text == expected


def test_spark_has_its_width_and_scale() -> None:
    assert figures.spark([0, 1, 2, 4], 4) == "▁▂▄█"
    assert figures.spark([1, 2], 5) == "   ▄█"
    assert figures.spark(list(range(100)), 8)[-1] == "█"
    assert figures.spark([0, 0], 2) == "▁▁"
    assert figures.spark([-3, 1], 2) == "▁█"
    assert figures.spark([], 3) == "   "
    assert figures.spark([1], 0) == ""


def test_graph_is_as_high_as_asked() -> None:
    rows = figures.graph([0, 4, 8], 9, 2)
    assert rows == ["      ███", "   ██████"]
    assert figures.graph([], 9, 2) == []
    assert all(len(row) <= 10 for row in figures.graph([1.0] * 60, 10, 3))


def test_bar_is_filled_by_ratio() -> None:
    assert figures.bar(0.5, 4) == "██░░"
    assert figures.bar(None, 3) == "░░░"
    assert figures.bar(9.0, 3) == "███"


def test_ascii_keeps_the_width() -> None:
    text = "╭─ █▁▇ é · › ▼ │"
    assert figures.to_ascii(text).isascii()
    assert len(figures.to_ascii(text)) == len(text)


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert figures.clean("a\x1b[2Jb\nc") == "a?[2Jb?c"
