"""The dashboard's loop: keys and snapshots in, frames out, until a key or a signal ends it.

Runs in the main thread and owns the Ui, the session and the terminal while it lasts. The poller lives in its own
thread and hands snapshots over a queue. Ends with a receipt line; the terminal is as it was."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue

from enginectl.top import actions
from enginectl.top.layout import Frame
from enginectl.top.poll import Poller
from enginectl.top.render import render
from enginectl.top.session import Session
from enginectl.top.snapshot import Snapshot, to_json
from enginectl.top.state import Effect, Scene, Ui, press
from enginectl.top.terminal import Ended, Terminal

IDLE_S = 1.0
"""The longest wait without a look at the clock: an age on the screen goes on although nothing comes."""


class App:
    """One sitting. `feed` starts whatever brings snapshots; None means replay of what the session already holds."""

    def __init__(self, poller: Poller | None, session: Session, ui: Ui, *, name: str, ascii_only: bool = False) -> None:
        self.session = session
        self.ui = ui
        self.name = name
        self.poller = poller
        self.ascii_only = ascii_only
        self.inbox: SimpleQueue[Snapshot | str] = SimpleQueue()
        self._frozen: Snapshot | None = None
        self.wake: Callable[[], None] = lambda: None

    def post(self, news: Snapshot | str) -> None:
        """A snapshot, or a line for the person. From any thread."""
        self.inbox.put(news)
        self.wake()

    def shown(self) -> Snapshot:
        """A frozen snapshot stays, also when the session has let it go."""
        held = self.ui.held
        if held is None:
            self._frozen = None
        elif self._frozen is None or self._frozen.seq != held:
            self._frozen = self.session.at(held)
        found = self._frozen or self.session.latest
        return found if found is not None else Snapshot(ts=time.time(), seq=0, name=self.name)

    def frame(self, width: int, height: int) -> Frame:
        shown, seqs = self.shown(), self.session.seqs
        place = (seqs.index(shown.seq) + 1 if shown.seq in seqs else 1, max(1, len(seqs)))
        self.ui = replace(self.ui, page=max(1, height - 16), place=place)
        if self.ui.dialog is not None:
            self.ui = replace(self.ui, dialog=replace(self.ui.dialog, is_seen=True))
        return render(shown, self.ui, width, height, now=time.time(), ascii_only=self.ascii_only)

    def take_news(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                news = self.inbox.get_nowait()
                if isinstance(news, str):
                    self.ui = replace(self.ui, notice=news)
                elif news.name == self.name:
                    self.session.add(news)

    def handle(self, keys: list[str]) -> Effect | None:
        """Applies the keys; the first effect of the ending or suspending kind is for the caller."""
        for key in keys:
            self.ui, effect = press(self.ui, key, Scene(self.shown(), self.session.seqs))
            self.shown()  # what was frozen just now is kept from here on
            if effect is not None and effect.kind in ("quit", "suspend", "redraw"):
                return effect
            if effect is not None:
                self._carry_out(effect)
        if self.poller is not None and self.poller.wants_log != (self.ui.view == "logs"):
            self.poller.wants_log = self.ui.view == "logs"
            self.poller.hurry()
        detailed = self.ui.cursor if self.ui.view == "detail" else ""
        if self.poller is not None and self.poller.wants_explained != detailed:
            self.poller.wants_explained = detailed
            self.poller.hurry()
        return None

    def _carry_out(self, effect: Effect) -> None:
        match effect.kind:
            case "switch" if self.poller is not None:
                self.name = effect.arg
                self.session.forget()
                self.poller.switch(effect.arg)
            case "interval" if self.poller is not None:
                self.poller.set_interval(float(effect.arg))
            case "reset":
                self.session.reset()
                self.ui = replace(self.ui, notice="session figures begin anew")
            case "save":
                self.ui = replace(self.ui, notice=save(self.shown()))
            case _ if self.poller is not None:
                actions.begin(effect, self.name, self.post)
            case _:
                self.ui = replace(self.ui, notice="not in a replay")


def save(snapshot: Snapshot) -> str:
    """Writes the snapshot where the person is, as one line that `top --replay` reads."""
    path = Path(f"top-{snapshot.name}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl").absolute()
    try:
        path.write_bytes(to_json(snapshot) + b"\n")
    except OSError as error:
        return f"! cannot write {path}: {error.strerror}"
    return f"saved to {path}"


def run(app: App) -> int:
    """Until the end; returns the signal that ended it, 0 for a key. The caller's own signal handlers are back then."""
    stray = io.StringIO()
    ended = 0
    try:
        with contextlib.redirect_stderr(stray), Terminal() as terminal:
            app.wake = terminal.wake
            if app.poller is not None:
                app.poller.start()
            try:
                _loop(app, terminal)
            except Ended as end:
                ended = end.number
            except OSError:
                ended = signal.SIGHUP  # the terminal is gone
            finally:
                app.wake = lambda: None
    finally:
        if app.poller is not None:
            app.poller.stop()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(stray.getvalue())
    return ended


def _loop(app: App, terminal: Terminal) -> None:
    size = terminal.size
    while True:
        app.take_news()
        if terminal.size != size:
            size = terminal.size
            terminal.redraw()
        terminal.draw(app.frame(*size))
        effect = app.handle(terminal.wait(IDLE_S))
        if effect is None:
            continue
        if effect.kind == "quit":
            return
        if effect.kind == "suspend":
            terminal.suspend()
        terminal.redraw()
