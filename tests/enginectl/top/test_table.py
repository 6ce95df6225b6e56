"""The requests table: order, filter, columns."""

from __future__ import annotations

import pytest

from enginectl.control import RequestView
from enginectl.top import table
from enginectl.top.layout import width_of
from tests.enginectl.top import samples


def test_every_sort_takes_every_row() -> None:
    rows = [*samples.requests(30), RequestView(id="bare")]
    for sort in table.SORTS:
        for invert in (False, True):
            assert sorted(r.id for r in table.arrange(rows, sort, invert, "")) == sorted(r.id for r in rows)


def test_oldest_first_and_inverted() -> None:
    rows = samples.requests(30)
    ages = [r.age_s for r in table.arrange(rows, "age", False, "")]
    assert ages == sorted(ages, reverse=True)
    assert [r.age_s for r in table.arrange(rows, "age", True, "")] == sorted(ages)


def test_what_is_not_known_comes_last() -> None:
    order = table.arrange([RequestView(id="a"), RequestView(id="b", tpot_ms=3.0)], "tpot", False, "")
    assert [r.id for r in order] == ["b", "a"]


def test_equal_rows_keep_their_place() -> None:
    rows = [RequestView(id=i, age_s=1.0) for i in "dbca"]
    assert [r.id for r in table.arrange(rows, "age", False, "")] == list("abcd")
    assert [r.id for r in table.arrange(rows[::-1], "age", False, "")] == list("abcd")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("WAITING", 3), ("client:1", 15), ("cmpl-01", 14), ("hog", 0), ("61% of the kv", 1), ("zzz", 0)],
)
def test_filter(wanted: str, found: int) -> None:
    assert len(table.arrange(samples.requests(30), "age", False, wanted)) == found


@pytest.mark.parametrize("width", [36, 56, 76, 96, 136, 196])
def test_rows_are_as_wide_as_the_table(width: int) -> None:
    rows = samples.requests(12)
    columns = table.columns_for(width, rows)
    ids = table.id_width(columns, rows, width)
    assert {"id", "state", "age"} <= {column.name for column in columns}
    assert width_of(table.header(columns, ids, width, "age")) == width
    for row in rows:
        assert width_of(table.row_line(row, columns, ids, width, True)) == width
        text = "".join(part for part, _ in table.row_line(row, columns, ids, width, False))
        assert (row.external_id or "") in text
        assert ("kv" in text) == (row.state == "waiting")
        assert text.startswith("! ") == row.is_hog


def test_wide_tables_have_every_column() -> None:
    assert len(table.columns_for(136, samples.requests(12))) == len(table.COLUMNS)


def test_an_id_cannot_steer_the_terminal() -> None:
    row = RequestView(id="x\x1b[2J\n" + "y" * 200)
    columns = table.columns_for(76, [row])
    text = "".join(part for part, _ in table.row_line(row, columns, table.id_width(columns, [row], 76), 76, False))
    assert text.isprintable()
    assert len(text) == 76


def test_the_hog_stands_first_then_the_oldest() -> None:
    rows = [RequestView(id="old", age_s=90.0), RequestView(id="hog", age_s=1.0, is_hog=True), RequestView(id="young")]
    assert table.SORTS[0] == "hog"
    assert [r.id for r in table.arrange(rows, "hog", False, "")] == ["hog", "old", "young"]


LARGE = RequestView(
    id="cmpl-e41ac5079a93",
    age_s=4000.0,
    prompt_tokens=123_456,
    output_tokens=12_345,
    max_tokens=131_072,
    blocks=12_345,
    ttft_s=123.0,
    tpot_ms=18_432.0,
    is_hog=True,
    note="12,345 of 131,072 tokens out, by far the most still to come",
    state="running",
)
LATE = RequestView(
    id="cmpl-28a9bca83128",
    max_tokens=16,
    waits_for="position 12; needs 12,345 blocks, 2 free",
    limit="blocks",
    blocks_needed=12_345,
)


@pytest.mark.parametrize("width", [56, 76, 96, 136])
def test_no_row_is_cut_and_all_columns_stand_below_their_titles(width: int) -> None:
    rows = [
        LARGE,
        LATE,
        RequestView(id="cmpl-149b2c98b5dd", waits_for="position 2; 8 of 8 sequences run", limit="sequences"),
    ]
    columns = table.columns_for(width, rows)
    ids = table.id_width(columns, rows, width)
    head = "".join(text for text, _ in table.header(columns, ids, width, "hog"))
    for row in rows:
        line = "".join(text for text, _ in table.row_line(row, columns, ids, width, False))
        end = 2
        for column in columns:
            end += (column.width or ids) + 1
            if not column.left:
                assert (line[end - 1], line[end - 2] != " ", head[end - 2] != " ") == (" ", True, True), (column, line)
        assert "…" not in line[2 + ids :], line
    lines = ["".join(text for text, _ in table.row_line(row, columns, ids, width, False)) for row in rows]
    assert "! hog" in lines[0]
    assert "kv full" in lines[1] or "needs 12,345 blocks, 2 free" in lines[1]
    assert "no place" in lines[2] or "8 of 8 sequences run" in lines[2]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("blocks", "kv full"),
        ("sequences", "no place"),
        ("paused", "any words"),
        ("", "any words"),
        ("new", "any words"),
    ],
)
def test_a_short_reason_is_told_by_its_name_whatever_the_engine_calls_it(limit: str, said: str) -> None:
    assert table.brief_why(RequestView(id="a", waits_for="any words", limit=limit)) == said


def test_the_whole_reason_stands_where_there_is_room() -> None:
    columns = table.columns_for(180, [LARGE])
    line = "".join(text for text, _ in table.row_line(LARGE, columns, table.id_width(columns, [LARGE], 180), 180, True))
    assert "! 12,345 of 131,072 tokens out, by far the most still to come" in line
