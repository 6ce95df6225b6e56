"""docs/errors.md: the exit codes and every error id, from the tables in the code. Pure."""

from __future__ import annotations

from enginectl.errors import EXIT_MEANINGS, Exit
from enginectl.errors_help import ERRORS

HEAD = """# Exit codes and error ids

Generated from the code by `make docs`; do not edit.

Every failure has an id; `enginectl help E1203` prints its paragraph from here. With `-o json` the same failure is the
one document on stdout: `{"schema": "enginectl/v1", "kind": "Error", "id", "message", "cause", "try", "see", "exit"}`.

## Exit codes

| Code | Meaning | Error ids |
|---|---|---|
"""


def render() -> str:
    rows = [f"| {int(code)} | {_cell(EXIT_MEANINGS[code])} | {_ids(code)} |" for code in Exit]
    parts = [HEAD + "\n".join(rows), "", "## Error ids", ""]
    for name, row in ERRORS.items():
        parts += [f"### {name}: {row.title} (exit {int(row.exit)})", "", row.meaning, "", row.do, ""]
    return "\n".join(parts)


def _ids(code: Exit) -> str:
    found = [f"[{name}](#{_anchor(name)})" for name, row in ERRORS.items() if row.exit == code]
    return ", ".join(found)


def _anchor(name: str) -> str:
    """As a forge makes it from the heading."""
    row = ERRORS[name]
    kept = (char for char in f"{name}: {row.title} (exit {int(row.exit)})".lower() if char.isalnum() or char in " -_")
    return "".join(kept).replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
