"""What is saved when an engine stalls or ends unasked, before anything is restarted: a directory of small files.

Log lines, figures, requests without text. A disk that is full costs the evidence, never the supervisor."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from enginectl.record import json_bytes
from enginectl.supervisor.logs import last_lines

Part: TypeAlias = Struct | list[Struct] | str | bytes
KEEP = 10
LOG_LINES = 200
TRIES = 100


def save_evidence(root: Path, kind: str, log: Path, parts: dict[str, Part]) -> str:
    """`parts`: file name without ending -> value (json), text, or bytes of a .jsonl. Returns the directory, empty
    when it failed."""
    files = {"engine.log": ("\n".join(last_lines(log, LOG_LINES)) + "\n").encode("utf-8", "replace")}
    for name, value in parts.items():
        if isinstance(value, bytes):
            files[f"{name}.jsonl"] = value
        elif isinstance(value, str):
            files[f"{name}.txt"] = value.encode("utf-8", "replace")
        else:
            files[f"{name}.json"] = json_bytes(value)
    return save_files(root, kind, files)


def save_files(root: Path, kind: str, files: dict[str, bytes]) -> str:
    """A directory of its own, named after the moment. Returns it, empty when it could not be written."""
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        where = _new_directory(root, kind)
        for name, data in files.items():
            (where / name).write_bytes(data)
        _drop_oldest(root)
    except OSError:
        return ""
    return str(where)


def _new_directory(root: Path, kind: str) -> Path:
    """Named so that they sort in the order they were made: one that would share a name is a millisecond later. Raises
    OSError."""
    began_ms = time.time_ns() // 1_000_000
    for at_ms in range(began_ms, began_ms + TRIES):
        second, ms = divmod(at_ms, 1000)
        where = root / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(second))}.{ms:03}-{kind}"
        with contextlib.suppress(FileExistsError):
            where.mkdir(mode=0o700)
            return where
    raise FileExistsError(str(where))


def _drop_oldest(root: Path) -> None:
    for old in sorted(path for path in root.iterdir() if path.is_dir())[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
