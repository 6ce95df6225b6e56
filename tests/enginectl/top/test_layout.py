"""Cells: cutting, padding, boxes, and the order in which a small screen gives things up."""

from __future__ import annotations

import io
import itertools

import pytest
from rich.console import Console

from enginectl.top import layout


@pytest.mark.parametrize("text", ["abc", "日本語のテキスト", "a" * 50, "", "é́", "🙂🙂🙂🙂"])
@pytest.mark.parametrize("width", [1, 2, 5, 8, 40])
def test_fit_is_exact(text: str, width: int) -> None:
    assert layout.width_of(layout.fit([(text, ""), ("xyz", "bold")], width)) == width


def test_box_is_exact() -> None:
    lines = layout.box([("a title that is too long for it", "")], [[("x" * 90, "")], []], 24, 6)
    assert len(lines) == 6
    assert {layout.width_of(line) for line in lines} == {24}


def test_shedding_follows_the_documented_order() -> None:
    assert layout.PARTS == ("events", "split", "histogram", "process", "throughput", "sparklines")
    seen: list[frozenset[str]] = [layout.shed(100, height) for height in range(30, 9, -1)]
    assert seen[0] == frozenset()
    for before, after in itertools.pairwise(seen):
        assert before <= after
    for gone in seen:
        assert gone == frozenset(layout.PARTS[: len(gone)])
    assert seen[-1] == frozenset(layout.PARTS)


def test_narrow_screens_give_up_what_stands_side_by_side() -> None:
    assert layout.shed(80, 50) == frozenset()
    assert layout.shed(79, 50) == {"process"}
    assert layout.shed(59, 50) == {"process", "throughput"}
    assert layout.shed(200, None) == frozenset()


def test_overlay_covers_the_middle_and_keeps_the_height() -> None:
    lines = [[(str(i), "")] for i in range(9)]
    out = layout.overlay(lines, [[("one", "")], [("two", "")]], 11)
    assert len(out) == 9
    assert layout.width_of(out[3]) == 7
    assert len(layout.overlay(lines[:1], [[("one", "")], [("two", "")]], 11)) == 1


def test_frames_compare_by_what_they_show() -> None:
    one, two = (layout.Frame([[("a", "bold")]], 5, height=2) for _ in range(2))
    assert one == two
    assert one != layout.Frame([[("b", "bold")]], 5, height=2)
    assert one.plain() == ["a", ""]


def test_frame_is_a_rich_renderable() -> None:
    target = io.StringIO()
    console = Console(file=target, width=20, height=3, color_system=None)
    console.print(layout.Frame([[("one", "bold red")], [("two", "")]], 20))
    assert [line.rstrip() for line in target.getvalue().splitlines()][:2] == ["one", "two"]
