from __future__ import annotations

import math

import pytest

from bench.table import ROWS, Line, Row, as_table, lines, medians, number

MORE = Row("rate", "rate", 1.4, "times at least")
LESS = Row("time", "time", 0.4, "times at most")
ALONE = Row("memory", "memory", 1200.0, "at most")


def test_the_better_of_the_peers_is_the_larger_rate_and_the_shorter_time() -> None:
    assert Line(MORE, 140.0, (50.0, 100.0)).ratio == 1.4
    assert Line(LESS, 40.0, (100.0, 200.0)).ratio == 0.4


@pytest.mark.parametrize(
    ("row", "ours", "holds"),
    [(MORE, 140.0, True), (MORE, 139.0, False), (LESS, 40.0, True), (LESS, 41.0, False), (ALONE, 1200.0, True),
     (ALONE, 1201.0, False)],
)  # fmt: skip
def test_a_target_holds_up_to_its_limit(row: Row, ours: float, holds: bool) -> None:
    assert Line(row, ours, (100.0, 100.0)).holds is holds


def test_a_limit_of_ours_alone_needs_no_peer() -> None:
    line = Line(ALONE, 900.0, (math.nan, math.nan))
    assert line.holds is True
    assert math.isnan(line.ratio)
    assert not line.is_complete


def test_what_was_not_measured_neither_holds_nor_fails() -> None:
    assert Line(MORE, math.nan, (1.0, 2.0)).holds is None
    assert Line(MORE, 1.0, (math.nan, math.nan)).holds is None


def test_one_setting_of_the_peer_is_enough_for_a_ratio() -> None:
    assert Line(MORE, 30.0, (math.nan, 20.0)).ratio == 1.5


def test_rows_beside_a_neighbour_have_figures_of_their_own() -> None:
    figures = {"ours": {"decode_tok_s_1": 10.0, "neighbour_decode_tok_s_1": 4.0},
               "them": {"decode_tok_s_1": 5.0, "neighbour_decode_tok_s_1": 1.0}}  # fmt: skip
    found = {line.row.title: line.ratio for line in lines(figures, ["them"]) if not math.isnan(line.ratio)}
    assert found == {"decode, 1 running, tokens/s": 2.0, "decode, 1 running, tokens/s, one core kept busy": 4.0}


def test_every_row_has_a_title_of_its_own() -> None:
    assert len({row.title for row in ROWS}) == len(ROWS)


def test_medians_of_what_the_runs_have() -> None:
    found = medians([{"a": 1, "b": 5.0, "text": "x"}, {"a": 9}, {"a": 2, "flag": True}])
    assert found == {"a": 2.0, "b": 5.0}


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.5, "1,234"), (99.96, "100"), (56.78, "56.8"), (8.912, "8.91"), (0.12345, "0.123"), (0.00456, "0.00456"),
     (2.0, "2"), (0.0, "0"), (math.nan, "-"), (40.0, "40")],
)  # fmt: skip
def test_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


def test_the_table_says_ratio_target_and_verdict() -> None:
    text = as_table([Line(MORE, 150.0, (50.0, 100.0)), Line(LESS, 90.0, (100.0, 200.0))], ["default", "best"])
    assert text[0] == "|  | ours | default | best | ratio to the better | target | holds |"
    assert text[2] == "| rate | 150 | 50 | 100 | 1.5 | >= 1.4 x | yes |"
    assert text[3] == "| time | 90 | 100 | 200 | 0.9 | <= 0.4 x | **no** |"
