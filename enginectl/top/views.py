"""The pictures other than the usual one: starting, draining, dead, a request in detail, steps, logs, events, help,
and the dialog before an action. A snapshot in, lines out. Pure."""

from __future__ import annotations

from enginectl.control import DrainProgress, EngineView, EventView, RequestView
from enginectl.control_explain import Explanation
from enginectl.control_stats import StepStats
from enginectl.top import figures
from enginectl.top.layout import Line, box, fit, width_of
from enginectl.top.panels import filled_buckets, labelled, slow_texts, split_parts, step_figures
from enginectl.top.snapshot import Snapshot
from enginectl.top.state import Dialog


def phases(view: EngineView) -> list[Line]:
    """Each named part of a start, with how long it took now and the last time."""
    out: list[Line] = []
    elapsed = view.uptime_s
    for phase in view.phases:
        done = phase.took_s is not None
        took = phase.took_s if phase.took_s is not None else max(0.0, elapsed - phase.began_s)
        last = f"last time {figures.seconds(phase.last_took_s)}" if phase.last_took_s is not None else ""
        out.append(
            [
                ("✔ " if done else "⠸ ", "green" if done else "yellow"),
                *fit([(phase.name, "" if done else "bold")], 18),
                (figures.seconds(took).rjust(8), "bold"),
                ("   ", ""),
                (phase.detail, ""),
                ("   " if phase.detail and last else "", ""),
                (last, "dim"),
            ]
        )
    return out or [[("waiting for the first phase", "dim")]]


def drain_lines(drain: DrainProgress, width: int) -> list[Line]:
    """What is left and who holds it up; who will miss the deadline on a line of its own where one is too short."""
    left = drain.running + drain.waiting
    line: Line = [
        (" draining ", "bold yellow"),
        (figures.span(drain.began_s_ago), ""),
        (f" of {figures.span(drain.grace_s)}", "dim"),
        *labelled("   left", str(left)),
        *labelled("  tokens", figures.count(drain.tokens_left)),
        *labelled("  eta", _eta(drain.eta_s)),
    ]
    if drain.worst_id:
        line += [*labelled("  worst", drain.worst_id), (f" ({_eta(drain.worst_eta_s)})", "dim")]
    if not drain.will_miss:
        return [line]
    more = f" and {len(drain.will_miss) - 3} more" if len(drain.will_miss) > 3 else ""
    miss: Line = [(f"  W will miss: {', '.join(drain.will_miss[:3])}{more}", "yellow")]
    return [[*line, *miss]] if width_of([*line, *miss]) <= width else [line, miss]


def _eta(value: float | None) -> str:
    return "-" if value is None else figures.span(value)


def post_mortem(view: EngineView, width: int) -> list[Line]:
    """How it ended, why, where the evidence is, what comes next."""
    out: list[Line] = []
    end = view.last_exit
    if end is not None:
        how = f"signal {end.signal}" if end.signal else f"code {end.code if end.code is not None else '-'}"
        when = f" at {figures.clock(end.at)}" if end.at else ""
        asked = " (asked for)" if end.requested else ""
        out.append(
            [
                ("! " if not end.requested else "  ", "bold red"),
                ("exited: ", "dim"),
                (how, "bold"),
                (f"{when}{asked}", ""),
                (f"   in phase {end.phase}" if end.phase else "", ""),
            ]
        )
        out += [
            labelled("  cause:" if i == 0 else "        ", row) for i, row in enumerate(wrap(end.cause, width - 9)[:6])
        ]
        out += [labelled("  evidence:", end.evidence)] if end.evidence else []
    if view.reason and not (end is not None and end.cause and end.cause in view.reason):
        out.append(labelled("  reason:", view.reason))
    if view.next_restart_in_s is not None:
        out.append(labelled("  restart in:", figures.seconds(view.next_restart_in_s)))
    return out or [[("the engine is gone", "bold red")]]


def detail(row: RequestView) -> list[Line]:
    """Everything known of one request."""
    pairs = [
        ("id", row.id),
        ("external id", row.external_id or "-"),
        ("state", row.state),
        ("age", figures.seconds(row.age_s)),
        ("prompt tokens", figures.count(row.prompt_tokens)),
        ("output tokens", f"{figures.count(row.output_tokens)} of {figures.count(row.max_tokens)}"),
        ("blocks held", figures.count(row.blocks)),
        ("blocks needed", figures.count(row.blocks_needed)),
        ("prompt cached", figures.percent(row.cached_ratio)),
        ("first token after", figures.seconds(row.ttft_s)),
        ("time per token", f"{figures.milliseconds(row.tpot_ms)} ms"),
        ("client", str(row.client)),
        ("priority", str(row.priority)),
        ("preemptions", str(row.preemptions)),
        ("waits for", row.waits_for or "-"),
    ]
    lines = [[(name.rjust(18), "dim"), ("  ", ""), (value, "bold")] for name, value in pairs]
    if row.is_hog:
        lines.append([("hog".rjust(18), "dim"), ("  ", ""), (f"! {row.note}", "yellow")])
    return lines


def explanation(found: Explanation | None, row: RequestView, width: int) -> list[Line]:
    """Why it waits, on whom and until when, or how long it still runs; nothing until that is known."""
    if found is None or found.request.id != row.id:
        return []
    start = figures.seconds(found.expected_start_s)
    pairs = [("why", found.because)]
    if row.state == "running":
        pairs.append(("ends within", f"{figures.seconds(found.eta_s)}, {figures.count(found.tokens_left)} tokens left"))
    else:
        pairs.append(("place in the line", figures.count(found.position)))
        pairs.append(("starts within", f"{start}, {figures.count(found.expected_start_steps)} steps"))
        for number, holder in enumerate(found.holders[:5]):
            share = "" if holder.share is None else f" ({holder.share:.0%})"
            text = f"{holder.external_id or holder.id}  {figures.count(holder.blocks)} blocks{share}"
            pairs.append(("" if number else "held by", f"{text}, {figures.seconds(holder.eta_s)}"))
    pairs += [("note", note) for note in found.notes]
    out: list[Line] = [[]]
    for name, value in pairs:
        room = max(20, width - 20)
        for number, part in enumerate([value] if len(value) <= room else wrap(value, room)):
            out.append([(("" if number else name).rjust(18), "dim"), ("  ", ""), (part, "bold")])
    return out


def event_line(events: tuple[EventView, ...], width: int) -> Line:
    """The youngest first, as many as fit whole; the first is cut when even it does not fit."""
    if not events:
        return [("nothing yet", "dim")]
    out: Line = []
    for event in reversed(events):
        piece: Line = [(figures.clock(event.ts) + " ", "dim"), (event.type, "cyan"), (f" {event.text}", "")]
        if out and width_of(out) + 3 + width_of(piece) > width:
            break
        out += [("   ", ""), *piece] if out else piece
    return out


def event_lines(events: tuple[EventView, ...], rows: int) -> list[Line]:
    """One event a line, the youngest at the bottom."""
    shown = events[-rows:] if rows > 0 else ()
    return [[(figures.clock(e.ts), "dim"), (f"  {e.type:<14}  ", "cyan"), (e.text, "")] for e in shown] or [
        [("nothing yet", "dim")]
    ]


def steps(step: StepStats, width: int, rows: int) -> list[Line]:
    """The step table: figures, split with shares, histogram as bars, the youngest steps as numbers."""
    out: list[Line] = [step_figures(step), []]
    total = sum(value or 0.0 for _, value in split_parts(step))
    cells = max(4, min(40, width - 34))
    for name, value in split_parts(step):
        share = (value or 0.0) / total if total > 0 else 0.0
        out.append(
            [
                (name.ljust(12), "dim"),
                (figures.milliseconds(value).rjust(8) + " ms ", "bold"),
                ("█" * round(share * cells), "cyan"),
                (f" {share:.0%}" if value is not None else "", "dim"),
            ]
        )
    if slow := slow_texts(step)[0]:
        out += [[], [(slow, "yellow")]]
    out.append([])
    buckets = filled_buckets(step)
    top = max((n for _, n in buckets), default=1)
    for name, n in buckets:
        out.append(
            [
                (f"{name} ms".rjust(12), "dim"),
                (f"{n:,}".rjust(8) + "    ", "bold"),
                ("█" * round(n / top * cells) or ("▏" if n else ""), "cyan"),
            ]
        )
    out.append([])
    per_row = max(1, (width - 10) // 8)
    recent = step.recent_ms[-per_row * max(0, min(6, rows - len(out))) :]
    for at in range(0, len(recent), per_row):
        numbers = "".join(figures.milliseconds(ms).rjust(8) for ms in recent[at : at + per_row])
        out.append([("youngest  " if at == 0 else " " * 10, "dim"), (numbers, "")])
    return out


def logs(snapshot: Snapshot, rows: int) -> list[Line]:
    lines = snapshot.log[-rows:] if rows > 0 else ()
    return [[(line.expandtabs(4), "")] for line in lines] or [[("no log lines", "dim")]]


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
    ("r  w", "reset session figures; save this snapshot to a file"),
    ("a  D  C  x", "abort, drain, cordon, stacks (--allow-actions; each asks first)"),
)


def help_box(width: int) -> list[Line]:
    body: list[Line] = [[(keys.ljust(17), "bold"), (text, "")] for keys, text in HELP]
    body += [[], [("W beside a figure: look at it.   !: act on it.", "dim")]]
    return box([("keys", "bold")], body, min(width, 84), style="cyan")


QUESTIONS = {
    "abort": "Abort request {target}? Its client gets an error.",
    "drain": "Drain? New requests are refused, the running ones finish, then the engine stops.",
    "cordon": "Cordon, or lift the cordon? New requests are refused while it is on.",
    "stacks": "Dump the stacks of all threads? They go to a file here.",
}


def dialog_box(dialog: Dialog, width: int, rows: int) -> list[Line]:
    """Engine and object named, Cancel chosen first. With few rows the hints go, then the end of the question; the
    choice never does."""
    cells = max(20, min(width, 78))
    question: list[Line] = [
        [(row, "")] for row in wrap(QUESTIONS[dialog.action].format(target=dialog.target), cells - 4)
    ]
    choice = dialog_choice(dialog)
    body = [*question, [], choice, [("left/right choose, Enter does it, Esc cancels", "dim")]]
    if len(body) + 2 > rows:
        body = [*question[: max(0, rows - 3)], choice]
    return box([(f"{dialog.action} · engine ", "bold"), (dialog.engine, "bold cyan")], body, cells, style="yellow")


def dialog_choice(dialog: Dialog) -> Line:
    out: Line = []
    for index, name in enumerate(("Cancel", dialog.action.capitalize())):
        chosen = index == dialog.choice
        out += [(f" >{name}< " if chosen else f"  {name}  ", "reverse" if chosen else ""), ("  ", "")]
    return out


def wrap(text: str, width: int) -> list[str]:
    """By words; a word longer than a line is cut over several."""
    lines = [""]
    for word in text.split():
        while len(word) > width:
            lines.append(word[:width])
            word = word[width:]
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return [line for line in lines if line]
