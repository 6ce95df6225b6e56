"""What lies over the picture for a while: the keys, the words of the figures, and the question before an action.
A Ui's values in, lines out. Pure."""

from __future__ import annotations

from enginectl.top.layout import Line, box
from enginectl.top.state import Dialog
from enginectl.top.styles import ACCENT, LABEL, NAME, WARN
from enginectl.top.views import wrap

WIDEST = 84
HELP = (
    ("q  Ctrl-C", "quit"),
    ("p  space", "freeze the picture; data keeps coming in"),
    ("[  ]  left right", "step back and forth through what was recorded, or a replay"),
    ("{  }  L", "the same by ten; to the newest, live again"),
    ("j k g G  arrows", "move the cursor"),
    ("Enter", "the request under the cursor in detail"),
    ("s  S  < >", "next sort column, invert, previous and next column"),
    ("/  n  Esc", "filter by id, state, client:N; next match; clear"),
    ("e  1-7", "one panel on the whole screen"),
    ("t  l  v", "step table, log, events"),
    ("Tab", "next engine"),
    ("+  -", "look more or less often"),
    ("r  w", "reset session figures; save to a file in this directory"),
    ("a  D  C  x", "abort, drain, cordon, stacks: --allow-actions; each asks"),
    ("?  ? again", "these keys; what the figures mean"),
)
WORDS = (
    ("W  !", "beside a figure: look at it; act on it"),
    ("ipc 1/0", "messages that wait inside the engine: came in / go out"),
    ("loop", "since the engine's loop last turned"),
    ("skipped", "waiting requests the last step passed over"),
    ("dropped", "messages unread by the engine, outputs unread by a client"),
    ("preempt 0/m", "requests put back for want of blocks, per minute"),
    ("in/s", "requests that came, per second"),
    ("free p5", "blocks free in all but the worst 5% of the last minute"),
    ("prefix hit", "share of the prompt tokens found in the cache"),
    ("ttft  tpot", "time to the first token; per token after it"),
    ("p50  p95", "half, 19 of 20 were no longer than this"),
    ("decode  prefill", "tokens put out, prompt tokens read, per second"),
    ("split", "where a step's time goes; idle: between two with work"),
    ("slow", "steps of three times the usual; the last one by number"),
    ("observer", "what being watched costs a step"),
    ("blocks (15)", "in brackets: what a request waits for"),
    ("sort ▲  ▼", "smallest first; largest first"),
)


def help_box(width: int) -> list[Line]:
    return _listed("keys", HELP, width)


def words_box(width: int) -> list[Line]:
    return _listed("figures", WORDS, width)


def _listed(title: str, rows: tuple[tuple[str, str], ...], width: int) -> list[Line]:
    body: list[Line] = [[(name.ljust(17), "bold"), (text, "")] for name, text in rows]
    return box([(title, "bold")], body, min(width, WIDEST), style=ACCENT)


QUESTIONS = {
    "abort": "Abort request {target}? Its client gets an error.",
    "drain": "Drain? New requests are refused, the running ones finish, then the engine stops.",
    "cordon": "Cordon, or lift the cordon? New requests are refused while it is on.",
    "stacks": "Dump the stacks of all threads? They go to a file in this directory.",
}


def dialog_box(dialog: Dialog, width: int, rows: int) -> list[Line]:
    """Engine and object named, Cancel chosen first. With few rows the hints go, then the end of the question; the
    choice never does."""
    cells = max(20, min(width, 78))
    question: list[Line] = [
        [(row, "")] for row in wrap(QUESTIONS[dialog.action].format(target=dialog.target), cells - 4)
    ]
    choice = dialog_choice(dialog)
    body = [*question, [], choice, [("y yes, n no; or arrows or Tab, then Enter", LABEL)]]
    if len(body) + 2 > rows:
        body = [*question[: max(0, rows - 3)], choice]
    return box([(f"{dialog.action} · engine ", "bold"), (dialog.engine, NAME)], body, cells, style=WARN)


def dialog_choice(dialog: Dialog) -> Line:
    out: Line = []
    for index, name in enumerate(("Cancel", dialog.action.capitalize())):
        chosen = index == dialog.choice
        out += [(f" >{name}< " if chosen else f"  {name}  ", "reverse" if chosen else ""), ("  ", "")]
    return out
