"""Who holds far more than a fair share."""

from __future__ import annotations

from enginectl.control import RequestView
from enginectl.supervisor.hog import mark_hogs


def view(name: str, blocks: int | None, out: int = 10, limit: int = 100, state: str = "running") -> RequestView:
    return RequestView(id=name, blocks=blocks, output_tokens=out, max_tokens=limit, state=state)  # type: ignore[arg-type]


def hogs(items: list[RequestView], total: int | None = 100) -> list[str]:
    mark_hogs(items, total)
    return [item.id for item in items if item.is_hog]


def test_three_times_the_median_in_blocks_is_a_hog_and_the_note_says_what() -> None:
    items = [view("a", 4), view("b", 5), view("c", 31, out=1203, limit=2048), view("d", 4)]
    assert hogs(items) == ["c"]
    assert items[2].note == "1,203 of 2,048 tokens out, holds 31% of the KV blocks"


def test_far_more_tokens_to_come_is_a_hog_before_it_holds_them() -> None:
    items = [view("a", 1, limit=64), view("b", 1, limit=64), view("c", 1, out=6, limit=4000)]
    assert hogs(items, 4096) == ["c"]
    assert items[2].note == "6 of 4,000 tokens out, by far the most still to come"


def test_a_part_of_the_cache_that_nobody_misses_makes_no_hog() -> None:
    assert hogs([view("a", 1), view("b", 1), view("c", 3)], 4096) == []
    assert hogs([view("a", 1), view("b", 1), view("c", 90)], 4096) == ["c"]


def test_equal_shares_and_small_company_have_no_hog() -> None:
    assert hogs([view(name, 10) for name in "abcd"]) == []
    assert hogs([view("a", 1), view("b", 90)]) == []
    assert hogs([view("a", 0, state="waiting"), view("b", 0, state="waiting"), view("c", 0, state="waiting")]) == []


def test_one_that_only_waits_holds_nobody_up_and_hides_nobody() -> None:
    running = [view(f"r{n}", 4, limit=300) for n in range(16)]
    late = view("late", 0, out=0, limit=6000, state="waiting")
    assert hogs([*running, late]) == []
    hog = view("hog", 4, limit=4000)
    assert hogs([*running, hog, late], 4096) == ["hog"]


def test_many_that_wait_do_not_hide_who_holds_the_cache() -> None:
    waiting = [view(f"w{n}", 0, out=0, state="waiting") for n in range(9)]
    assert hogs([view("a", 2), view("b", 3), view("c", 80), *waiting]) == ["c"]
    assert hogs([view("a", 4), view("c", 80), *waiting]) == ["c"]


def test_the_only_one_that_runs_is_measured_by_those_that_wait() -> None:
    waiting = [view(f"w{n}", 0, out=0, state="waiting") for n in range(3)]
    assert hogs([view("a", 4), *waiting]) == []
    assert hogs([view("a", 4, limit=4000), *waiting], 4096) == ["a"]


def test_one_that_was_preempted_comes_back_before_the_others() -> None:
    others = [view("a", 4), view("b", 4)]
    assert hogs([*others, view("c", 0, out=123, limit=1900, state="preempted")]) == ["c"]


def test_without_block_counts_tokens_tell() -> None:
    items = [view("a", None, out=100), view("b", None, out=100), view("c", None, out=900)]
    assert hogs(items, None) == ["c"]
    assert "KV" not in items[2].note
    assert hogs([view("a", None, out=1), view("b", None, out=1), view("c", None, out=90)], None) == []


def test_blocks_are_not_compared_with_tokens() -> None:
    """Those that began a moment ago have no count of blocks yet."""
    assert hogs([view("a", 1, out=9), view("b", 1, out=9), view("new", None, out=12)], 100) == []
    assert hogs([view("a", 30, out=480), view("b", None, out=2), view("c", None, out=2)], 100) == ["a"]
