"""The colours of the dashboard, one name for each meaning. Pure values, in rich's words.

Fixed colours of middling lightness from the palette of 256, because a terminal's own yellow, cyan and faint text vanish
on a white ground: each has a contrast of about 4 to 1 or more on white and on black alike. Nothing is said by colour
alone: what matters is lettered too (W, !)."""

from __future__ import annotations

LABEL = "color(243)"
"""Names of figures, frames, and what is of the past."""
WARN = "bold color(130)"
BAD = "bold color(160)"
GOOD = "color(28)"
ACCENT = "color(30)"
NAME = "bold color(30)"

WITH_SIXTEEN = {LABEL: "", WARN: "bold magenta", BAD: "bold red", GOOD: "", ACCENT: "", NAME: "bold"}
"""The same where a terminal has only its own sixteen colours: magenta and red are dark enough on white and light enough
on black; the nearest to the others (yellow, cyan, a grey that may be the ground itself) are not."""
