"""Help and dialogs: whole at the sizes people have, and every figure that needs a word has one."""

from __future__ import annotations

import pytest

from enginectl.top.layout import width_of
from enginectl.top.overlays import HELP, WORDS, help_box, words_box
from enginectl.top.render import render
from enginectl.top.state import Ui
from tests.enginectl.top import samples


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_of_help_is_cut(width: int) -> None:
    for box, rows in ((help_box(width), HELP), (words_box(width), WORDS)):
        shown = ["".join(text for text, _ in line) for line in box]
        assert all(any(words in line for line in shown) for _, words in rows)
        assert not any("…" in line for line in shown)
        assert max(map(width_of, box)) <= width


@pytest.mark.parametrize("view", ["help", "figures"])
def test_a_page_of_help_fits_the_usual_screen(view: str) -> None:
    shown = "\n".join(render(samples.snapshot("saturated"), Ui(view=view), 80, 24, now=samples.NOW).plain())
    rows = HELP if view == "help" else WORDS
    assert all(words in shown for _, words in rows)


def test_each_figure_that_needs_a_word_has_one() -> None:
    told = " ".join(name for name, _ in WORDS)
    for name in ("free p5", "ipc", "skipped", "0/m", "ttft", "tpot", "W", "!"):
        assert name in told
