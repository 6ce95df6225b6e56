"""What is on the screen can be read on a dark ground and on a light one."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from rich.style import Style

from enginectl.top.render import render
from enginectl.top.state import Ui
from tests.enginectl.top import samples
from tests.enginectl.top.test_render import SNAPSHOTS, VIEWS

LEAST = 3.8
"""To one; 4.5 on both grounds at once is out of reach of a colour that still is one."""


def luminance(*rgb: int) -> float:
    """Of sRGB, as the contrast of text is reckoned."""
    parts = [value / 255 for value in rgb]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def styles() -> set[str]:
    found: set[str] = set()
    for snapshot in (*SNAPSHOTS.values(), samples.snapshot("draining"), samples.snapshot("stalled")):
        for ui in VIEWS:
            frame = render(snapshot, ui, 100, 32, now=samples.NOW)
            found |= {style for line in frame.lines for text, style in line if text.strip() and style}
    return found


def test_all_that_is_drawn_is_seen() -> None:
    assert len(styles()) > 5


@pytest.mark.parametrize("name", sorted(styles()))
def test_every_style_is_readable_on_both_grounds(name: str) -> None:
    style = Style.parse(name)
    assert not style.dim, "faint is invisible on white"
    if style.color is None:
        return
    assert style.color.number is None or style.color.number > 15, "a terminal's own sixteen are anything"
    own = luminance(*style.color.get_truecolor())
    assert (1.0 + 0.05) / (own + 0.05) >= LEAST, "on white"
    assert (own + 0.05) / 0.05 >= LEAST, "on black"


def test_of_sixteen_colours_only_two_are_used() -> None:
    used: set[str] = set()
    for snapshot in SNAPSHOTS.values():
        console = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=100)
        console.print(render(snapshot, Ui(), 100, 32, now=samples.NOW))
        codes = re.findall(r"\x1b\[([\d;]*)m", console.file.getvalue())  # type: ignore[attr-defined]
        used |= {code for found in codes for code in found.split(";")}
    assert {"31", "35"} < used
    assert used <= {"", "0", "1", "4", "7", "31", "35"}
