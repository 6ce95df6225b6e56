"""The dashboard without a terminal: one snapshot on paper, a stream of JSON lines, and reading such lines back.

A line of the stream is a Snapshot with the schema beside it; `w` in the dashboard writes the same."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import structs

from enginectl.errors import Unreachable, UsageError
from enginectl.output import out
from enginectl.top.poll import Poller
from enginectl.top.render import render
from enginectl.top.snapshot import Snapshot, from_json
from enginectl.top.state import Ui

PAPER_WIDTH = 80
"""Of a snapshot into a pipe where COLUMNS says nothing."""
MAX_REPLAY_BYTES = 256 * 1024**2


def is_interactive(environ: Mapping[str, str] = os.environ) -> bool:
    """May the screen be taken over? Asks the terminal itself; a colour variable never makes one."""
    return sys.stdout.isatty() and environ.get("TERM", "") not in ("", "dumb", "unknown")


def needs_ascii(encoding: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Boxes and sparks in ASCII: an output that is not UTF-8, or a locale that was set to C on purpose."""
    if not encoding.lower().replace("-", "").startswith("utf"):
        return True
    chosen = next((environ[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(key)), "")
    if environ.get("LC_CTYPE") == "C.UTF-8" and environ.get("LANG") in ("C", "POSIX"):
        return True  # Python put LC_CTYPE there itself, to be able to print at all; the terminal still wants ASCII
    return chosen in ("C", "POSIX")


def ignore(snapshot: Snapshot) -> None:
    """For a poller whose rounds the caller takes one by one."""


def print_once(snapshot: Snapshot, ui: Ui, *, ascii_only: bool) -> None:
    """The snapshot as text, or as one document. Raises Unreachable when there is nothing to show."""
    if snapshot.view is None:
        raise Unreachable(
            f"supervisor of engine {snapshot.name!r} is unreachable",
            cause=snapshot.link.reason,
            try_=[f"enginectl kill {snapshot.name}", f"enginectl status {snapshot.name}"],
        )
    out.document("Top", snapshot)
    columns = os.environ.get("COLUMNS", "")
    width = out.table_width or (int(columns) if columns.isdigit() and int(columns) >= 40 else PAPER_WIDTH)
    out.text(*render(snapshot, ui, width, None, now=snapshot.ts, ascii_only=ascii_only).plain())


def stream(poller: Poller, count: int | None, sleep: Callable[[float], None] = time.sleep) -> None:
    """JSON lines, one at once and one each interval, until `count`, an interrupt, or nobody reads them."""
    out.json = True
    due = time.monotonic()
    sent = 0
    while True:
        out.line("snapshot", poller.look())
        sent += 1
        if count is not None and sent >= count:
            return
        due = max(due + poller.interval_s, time.monotonic())
        sleep(max(0.0, due - time.monotonic()))


def load(path: Path) -> list[Snapshot]:
    """The snapshots of a file, in the order of the file and numbered by it: lines of --stream, a flight record, or a
    bundle with one. Raises UsageError."""
    from enginectl.top import flight

    try:
        if path.stat().st_size > MAX_REPLAY_BYTES:
            raise UsageError(f"{path} is larger than {MAX_REPLAY_BYTES >> 20} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}", cause=error.strerror or str(error)) from None
    if flight.is_bundle(data):
        found = flight.from_bundle(path)
    else:
        lines = data.splitlines()
        found = [snapshot for line in lines if (snapshot := from_json(line)) is not None] or flight.from_lines(lines)
    if not found:
        raise UsageError(
            f"{path} holds no snapshot and no step", try_=["enginectl top --stream > FILE", "enginectl dump --out FILE"]
        )
    return [structs.replace(snapshot, seq=number) for number, snapshot in enumerate(found)]
