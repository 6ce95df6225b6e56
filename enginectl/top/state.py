"""What the person at the dashboard has chosen, and how one key changes it: a pure reducer, no terminal, no socket.

press(ui, key, scene) gives the next Ui and at most one Effect for app.py to carry out. Nothing here touches an engine:
a key that would, opens a dialog whose first choice is Cancel, and only when actions were allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from enginectl.control import RequestView
from enginectl.top.snapshot import Snapshot
from enginectl.top.table import HOG, SORTS, arrange

INTERVALS_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
PANELS = ("process", "queues", "kv cache", "throughput", "step timing", "requests", "events")
"""By their number keys, 1 to 7."""
ACTIONS = {"a": "abort", "D": "drain", "C": "cordon", "x": "stacks"}


@dataclass(frozen=True, slots=True)
class Effect:
    """Something outside the picture that a key asked for."""

    kind: str
    """quit, switch, interval, reset, save, suspend, redraw or one of ACTIONS"""
    arg: str = ""


@dataclass(frozen=True, slots=True)
class Dialog:
    """A question before an action. `choice` 0 is Cancel."""

    action: str
    engine: str
    target: str = ""
    """The request's id, for abort."""
    choice: int = 0
    is_seen: bool = False
    """It was on the screen: only then does the letter y answer it, so that a word typed blindly or pasted does not."""


@dataclass(frozen=True, slots=True)
class Ui:
    sort: str = HOG
    invert: bool = False
    filter: str = ""
    typing: str | None = None
    """The filter while it is being typed."""
    cursor: str = ""
    """Id of the chosen request; it stays on it when the order changes."""
    cursor_row: int = 0
    """Where that request was last, for when it is gone."""
    view: str = "main"
    """main, steps, logs, detail, help, figures or panel"""
    panel: int = 5
    """Index into PANELS, for view `panel`."""
    held: int | None = None
    """seq of the snapshot that is shown although newer ones exist."""
    interval_s: float = 1.0
    allow_actions: bool = False
    dialog: Dialog | None = None
    notice: str = ""
    """One line from the tool itself, until the next key."""
    page: int = 10
    """Rows of the table on the screen at the last frame."""
    is_replay: bool = False
    """What is shown is a file: nothing comes in, steps are taken by hand."""
    place: tuple[int, int] = (1, 1)
    """Of the snapshot shown, in those that there are: number and count."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a key is judged against: the picture on the screen and what else could be on it."""

    shown: Snapshot
    history: Sequence[int] = ()
    """seq of every snapshot kept, oldest first."""


def rows_of(ui: Ui, snapshot: Snapshot) -> list[RequestView]:
    wanted = ui.typing if ui.typing is not None else ui.filter
    return arrange(snapshot.requests, ui.sort, ui.invert, wanted)


def cursor_index(ui: Ui, rows: Sequence[RequestView]) -> int:
    """Where the cursor is: on its request, or, when that is gone, on the row it was in."""
    for index, row in enumerate(rows):
        if row.id == ui.cursor:
            return index
    return max(0, min(ui.cursor_row, len(rows) - 1))


def press(ui: Ui, key: str, scene: Scene) -> tuple[Ui, Effect | None]:
    """The whole keyboard. An unknown key changes nothing but the notice."""
    if key == "ctrl-c":
        return ui, Effect("quit")
    if ui.dialog is not None:
        return _in_dialog(ui, ui.dialog, key)
    if ui.typing is not None:
        return _while_typing(ui, key), None
    ui = replace(ui, notice="")
    if key in ("q", "ctrl-z", "ctrl-l", "tab", "backtab", "+", "=", "-", "r", "w"):
        return _outside(ui, key, scene)
    if key in ACTIONS:
        return _ask(ui, ACTIONS[key], scene), None
    return _inside(ui, key, scene), None


def _outside(ui: Ui, key: str, scene: Scene) -> tuple[Ui, Effect | None]:
    if key in ("+", "=", "-"):
        return _change_interval(ui, -1 if key == "-" else 1)
    if key in ("tab", "backtab"):
        return _switch(ui, scene.shown, -1 if key == "backtab" else 1)
    kinds = {"q": "quit", "ctrl-z": "suspend", "ctrl-l": "redraw", "r": "reset", "w": "save"}
    return ui, Effect(kinds[key])


def _change_interval(ui: Ui, by: int) -> tuple[Ui, Effect]:
    """`+` looks more often, `-` less often."""
    at = min(range(len(INTERVALS_S)), key=lambda i: abs(INTERVALS_S[i] - ui.interval_s))
    new = INTERVALS_S[max(0, min(len(INTERVALS_S) - 1, at - by))]
    return replace(ui, interval_s=new, notice=f"looking every {new:g} s"), Effect("interval", str(new))


def _switch(ui: Ui, shown: Snapshot, by: int) -> tuple[Ui, Effect | None]:
    names = list(shown.engines)
    if not names or names == [shown.name]:
        return replace(ui, notice="no other engine"), None
    at = names.index(shown.name) if shown.name in names else -by
    target = names[(at + by) % len(names)]
    return replace(ui, cursor="", cursor_row=0, held=None, view="main"), Effect("switch", target)


def _ask(ui: Ui, action: str, scene: Scene) -> Ui:
    if not ui.allow_actions:
        return replace(ui, notice=f"read-only: start top with --allow-actions to {action}")
    target = ""
    if action == "abort":
        rows = rows_of(ui, scene.shown)
        if not rows:
            return replace(ui, notice="no request to abort")
        target = rows[cursor_index(ui, rows)].id
    return replace(ui, dialog=Dialog(action, scene.shown.name, target))


def _in_dialog(ui: Ui, dialog: Dialog, key: str) -> tuple[Ui, Effect | None]:
    """Arrows and Tab move, Enter takes what is marked, y and n answer. Every other key, letters above all, does
    nothing: who types on without looking must not move the mark."""
    if key in ("left", "right", "up", "down", "tab", "backtab"):
        return replace(ui, dialog=replace(dialog, choice=1 - dialog.choice)), None
    is_yes = (key in ("y", "Y") and dialog.is_seen) or (key == "enter" and dialog.choice == 1)
    if not is_yes and key not in ("esc", "n", "N", "enter"):
        return ui, None
    if not is_yes:
        return replace(ui, dialog=None, notice="cancelled"), None
    return replace(ui, dialog=None, notice=f"{dialog.action} ..."), Effect(dialog.action, dialog.target)


def _while_typing(ui: Ui, key: str) -> Ui:
    typed = ui.typing or ""
    if key == "enter":
        return replace(ui, filter=typed, typing=None, cursor="", cursor_row=0)
    if key == "esc":
        return replace(ui, typing=None)
    if key == "backspace":
        return replace(ui, typing=typed[:-1])
    char = " " if key == "space" else key
    return replace(ui, typing=(typed + char)[:80]) if len(char) == 1 else ui


def _inside(ui: Ui, key: str, scene: Scene) -> Ui:
    if key in MOVES:
        return _move(ui, key, scene.shown)
    if key in ("s", ">", "<"):
        at = SORTS.index(ui.sort) + (-1 if key == "<" else 1)
        return replace(ui, sort=SORTS[at % len(SORTS)])
    if key == "S":
        return replace(ui, invert=not ui.invert)
    if key == "/":
        return replace(ui, typing=ui.filter, view="main" if ui.view not in ("main", "panel") else ui.view)
    if key == "esc":
        return _escape(ui)
    if key in TRAVEL or key in ("p", "space", "L"):
        return _travel(ui, key, scene)
    if key == "enter" and ui.view != "detail":
        ui = _pin(ui, scene.shown)
    return _choose_view(ui, key)


def _pin(ui: Ui, shown: Snapshot) -> Ui:
    """The cursor on the request it is at, so that the detail does not wander to another one."""
    rows = rows_of(ui, shown)
    if not rows:
        return ui
    at = cursor_index(ui, rows)
    return replace(ui, cursor=rows[at].id, cursor_row=at)


def _escape(ui: Ui) -> Ui:
    """One step back: first out of a view, then out of the filter."""
    if ui.view != "main":
        return replace(ui, view="main")
    return replace(ui, filter="", cursor_row=0)


def _choose_view(ui: Ui, key: str) -> Ui:
    def toggled(view: str) -> Ui:
        return replace(ui, view="main" if ui.view == view else view)

    if key == "?":
        return replace(ui, view={"help": "figures", "figures": "main"}.get(ui.view, "help"))
    views = {"t": "steps", "l": "logs", "enter": "detail"}
    if key in views:
        return toggled(views[key])
    if key == "e":
        return toggled("panel")
    number = 6 if key == "v" else (int(key) - 1 if key in "1234567" else -1)
    if number < 0:
        return ui
    if ui.view == "panel" and ui.panel == number:
        return replace(ui, view="main")
    return replace(ui, view="panel", panel=number)


TRAVEL = {"]": 1, "right": 1, "}": 10, "[": -1, "left": -1, "{": -10}


def _travel(ui: Ui, key: str, scene: Scene) -> Ui:
    """Freeze, step through what was recorded, go live."""
    seqs = list(scene.history)
    if ui.is_replay and key in ("p", "space"):
        return replace(ui, notice="a replay stands still: ] and [ step, } and { by ten, L goes to the end")
    if key == "L" or (key in ("p", "space") and ui.held is not None):
        return replace(ui, held=seqs[-1] if ui.is_replay and seqs else None)
    if key in ("p", "space"):
        return replace(ui, held=scene.shown.seq)
    if not seqs:
        return ui
    at = seqs.index(scene.shown.seq) if scene.shown.seq in seqs else len(seqs) - 1
    to = at + TRAVEL[key]
    if to >= len(seqs) and not ui.is_replay:
        return replace(ui, held=None)
    to = max(0, min(len(seqs) - 1, to))
    notice = ("the end of the recording" if to else "its beginning") if to == at else ""
    return replace(ui, held=seqs[to], notice=notice)


MOVES = {"j": 1, "down": 1, "k": -1, "up": -1, "n": 1, "g": 0, "home": 0, "G": 0, "end": 0, "pageup": 0, "pagedown": 0}


def _move(ui: Ui, key: str, shown: Snapshot) -> Ui:
    rows = rows_of(ui, shown)
    if not rows:
        return ui
    at = cursor_index(ui, rows)
    if key in ("g", "home"):
        at = 0
    elif key in ("G", "end"):
        at = len(rows) - 1
    elif key in ("pageup", "pagedown"):
        at += ui.page if key == "pagedown" else -ui.page
    elif key == "n":
        at = (at + 1) % len(rows)
    else:
        at += MOVES[key]
    at = max(0, min(len(rows) - 1, at))
    return replace(ui, cursor=rows[at].id, cursor_row=at)
