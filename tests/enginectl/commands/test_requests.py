"""The rows of `requests` on a narrow terminal: the id and the reason stay."""

from __future__ import annotations

from enginectl.commands.requests import left_out_lines, table_lines
from enginectl.control import RequestView
from enginectl.views import request_row

ROWS = [
    request_row(
        RequestView(
            id="gen-1c3ac872-0-8a1f0945", external_id="gen-1c3ac872", state="running", age_s=99.1, prompt_tokens=4096,
            output_tokens=25, max_tokens=4000, blocks=300, cached_ratio=0.5, ttft_s=1.0, tpot_ms=40.0, client=0,
            is_hog=True, note="25 of 4,000 tokens out, by far the most still to come",
        )
    ),
    request_row(RequestView(id="gen-2", state="waiting", age_s=1.0, prompt_tokens=4, waits_for="all 32 places run")),
]  # fmt: skip


def test_at_80_columns_the_hog_and_the_reason_are_there() -> None:
    lines = table_lines(ROWS, 80)
    assert max(map(len, lines)) <= 80
    assert "NOTE" in lines[0]
    assert lines[1].startswith("gen-1c3ac872  running") and "hog: 25 of 4,000 tokens" in lines[1]
    assert "all 32 places run" in lines[2]
    assert left_out_lines(lines[0], 80) == ["not shown: PROMPT, CACHED, TTFT, CLIENT; -o json has all"]


def test_off_a_terminal_nothing_is_left_out() -> None:
    header, hog, _ = table_lines(ROWS, None)
    for name in ("PROMPT", "CACHED", "TTFT", "TPOT", "CLIENT", "NOTE"):
        assert name in header
    assert left_out_lines(header, None) == []
    assert hog.endswith("by far the most still to come")
