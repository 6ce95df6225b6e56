"""What `drain` says of what is left: whole words at any width, and each estimate by its name."""

from __future__ import annotations

import pytest

from enginectl.commands.drain import first_lines, will_miss_lines
from enginectl.control import DrainProgress

PROGRESS = DrainProgress(
    began_s_ago=0.1, grace_s=300, running=16, waiting=14, tokens_left=107_200, tok_s=189.0, eta_s=567.0,
    worst_id="gen-1c3ac872", worst_eta_s=2900.0,
)  # fmt: skip


@pytest.mark.parametrize("width", [40, 80, 200, None])
def test_each_estimate_has_its_name_and_no_word_is_broken(width: int | None) -> None:
    lines = first_lines(PROGRESS, width)
    assert width is None or max(map(len, lines)) <= width
    said = " ".join(line.strip() for line in lines)
    assert "all tokens at this rate in 9m27s" in said
    assert "the slowest request in 48m20s" in said
    assert "16 running, 14 waiting, about 107,200 tokens left, 189 tok/s" in said


def test_without_an_estimate_there_is_one_line() -> None:
    assert first_lines(DrainProgress(began_s_ago=0, grace_s=1, tok_s=142.0), 80) == [
        "  0 running, 0 waiting, about 0 tokens left, 142 tok/s"
    ]


def test_ids_are_never_broken_in_two() -> None:
    ids = [f"gen-{n:08x}" for n in range(14)]
    lines = will_miss_lines([f"{name}-8a1f0945" for name in ids], 80)
    assert max(map(len, lines)) <= 80
    said = " ".join(lines)
    assert all(name in said for name in ids[:10]) and "and 4 more" in said
