"""The EXAMPLES of the man pages as data: each command, and what the source says of it.

A comment before a block says why it is not run, which exit code is right, or that the block is a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tools.man import read_source

INDENT = "    "


class Example(NamedTuple):
    line: str
    """One command line, or the text of a file."""
    exit: int = 0
    not_run: str = ""
    """Why; empty: it is run."""
    file: str = ""


def examples(path: Path) -> list[Example]:
    """In the order of the page."""
    text = read_source(path).body.split("# EXAMPLES\n", 1)[1].split("\n# ")[0]
    found: list[Example] = []
    for block in re.split(r"\n\n(?!    )", text):
        comment = re.search(r"<!-- (not run|exit|file):? ?(.*?) -->", block)
        kind, said = (comment[1], comment[2]) if comment else ("", "")
        kept = [line.removeprefix(INDENT) for line in block.splitlines() if line.startswith(INDENT) or not line]
        if kind == "file":
            found.append(Example("\n".join(kept).strip() + "\n", file=said))
            continue
        code = int(said.split(":")[0]) if kind == "exit" else 0
        found += [Example(line, code, said if kind == "not run" else "") for line in kept if line]
    return found
