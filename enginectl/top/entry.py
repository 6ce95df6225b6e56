"""What `enginectl top` does with its options: draw, print once, stream, or replay. Returns the exit code.

On a terminal the dashboard ends with one line in the scrollback; a signal that ended it is raised again once the
terminal is as it was, so that the command ends as any other does."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path

from enginectl.output import out
from enginectl.top.app import App, run
from enginectl.top.poll import Poller
from enginectl.top.session import Session
from enginectl.top.state import Ui
from enginectl.top.stream import ignore, is_interactive, load, needs_ascii, print_once, stream


def wants_ascii(forced: bool) -> bool:
    return forced or needs_ascii(sys.stdout.encoding or "ascii")


def watch(name: str, ui: Ui, *, ascii_only: bool, once: bool) -> int:
    """The dashboard, or one snapshot where it cannot be or is not wanted. Raises CtlError."""
    if once or out.json or not is_interactive():
        print_once(Poller(name, ignore, interval_s=ui.interval_s).look(), ui, ascii_only=ascii_only)
        return 0
    app = App(None, Session(), ui, name=name, ascii_only=ascii_only)
    app.poller = Poller(name, app.post, interval_s=ui.interval_s)
    return _draw(app)


def write_stream(name: str, interval_s: float, count: int | None) -> int:
    stream(Poller(name, ignore, interval_s=interval_s), count)
    return 0


def replay(path: Path, *, ascii_only: bool, once: bool) -> int:
    """Begins at the first snapshot of the file; off a terminal the last one is printed. Raises UsageError."""
    session = Session(history=None)
    for snapshot in (found := load(path)):
        session.add(snapshot)
    if once or out.json or not is_interactive():
        print_once(found[-1], Ui(is_replay=True, place=(len(found),) * 2), ascii_only=ascii_only)
        return 0
    return _draw(App(None, session, Ui(held=found[0].seq, is_replay=True), name=found[0].name, ascii_only=ascii_only))


def _draw(app: App) -> int:
    ended = run(app)
    with contextlib.suppress(OSError):
        out.say(app.session.receipt(app.name))
    if ended not in (0, signal.SIGINT):
        signal.raise_signal(signal.Signals(ended))
    return 0
