"""What is saved when an engine stalls or ends unasked, before anything is restarted: a directory of small files.

Log lines, figures, requests without text. A disk that is full costs the evidence, never the supervisor."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from msgspec import Struct

from enginectl.record import json_bytes
from enginectl.supervisor.logs import last_lines

KEEP = 10
LOG_LINES = 200


def save_evidence(root: Path, kind: str, log: Path, parts: dict[str, Struct | list[Struct] | str]) -> str:
    """`parts`: file name without ending -> value (json) or text. Returns the directory, empty when it failed."""
    where = root / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{kind}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        where.mkdir(mode=0o700, exist_ok=True)
        (where / "engine.log").write_text("\n".join(last_lines(log, LOG_LINES)) + "\n")
        for name, value in parts.items():
            if isinstance(value, str):
                (where / f"{name}.txt").write_text(value)
            else:
                (where / f"{name}.json").write_bytes(json_bytes(value))
        _drop_oldest(root)
    except OSError:
        return ""
    return str(where)


def _drop_oldest(root: Path) -> None:
    for old in sorted(path for path in root.iterdir() if path.is_dir())[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
