"""The pictures other than the usual one: starting, draining, dead, a request in detail, steps, logs, events.
A snapshot in, lines out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from enginectl.control import DrainProgress, EngineView, EventView, ExitInfo, RequestView
from enginectl.control_explain import Explanation
from enginectl.control_stats import StepStats
from enginectl.top import figures
from enginectl.top.layout import Line, first_fit, fit, width_of
from enginectl.top.panels import filled_buckets, labelled, slow_texts, split_parts, step_figures
from enginectl.top.snapshot import Snapshot
from enginectl.top.styles import ACCENT, BAD, GOOD, LABEL, WARN


def phases(view: EngineView, width: int) -> list[Line]:
    """Each named part of a start, with how long it took now and the last time; the detail gives way."""
    out: list[Line] = []
    elapsed = view.uptime_s
    for phase in view.phases:
        done = phase.took_s is not None
        took = phase.took_s if phase.took_s is not None else max(0.0, elapsed - phase.began_s)
        last = f"last time {figures.seconds(phase.last_took_s)}" if phase.last_took_s is not None else ""
        room = max(0, width - 2 - 18 - 8 - 3 - (3 + len(last) if last else 0))
        detail = phase.detail if len(phase.detail) <= room else phase.detail[: max(0, room - 1)] + "…"
        out.append(
            [
                ("✔ " if done else "⠸ ", GOOD if done else WARN),
                *fit([(phase.name, "" if done else "bold")], 18),
                (figures.seconds(took).rjust(8), "bold"),
                ("   ", ""),
                (detail, ""),
                ("   " if detail and last else "", ""),
                (last, LABEL),
            ]
        )
    return out or [[("waiting for the first phase", LABEL)]]


def drain_lines(drain: DrainProgress, rows: Sequence[RequestView], width: int) -> list[Line]:
    """What is left and who holds it up. Two estimates that answer two questions: all tokens at the rate of now, and the
    slowest request at its own pace. What one line cannot hold goes on the next."""
    left = drain.running + drain.waiting
    users = {row.id: row.external_id or row.id for row in rows}
    parts: list[Line] = [
        [
            (" draining ", WARN),
            (figures.span(drain.began_s_ago), ""),
            (f" of {figures.span(drain.grace_s)}", LABEL),
            *labelled("   left", str(left)),
            *labelled("  tokens", figures.count(drain.tokens_left)),
        ],
        labelled("  all at this rate in", _eta(drain.eta_s)),
    ]
    if drain.worst_id:
        slowest = users.get(drain.worst_id, drain.worst_id)
        parts.append([*labelled("  slowest", slowest), (" in ", LABEL), (_eta(drain.worst_eta_s), "bold")])
    if drain.will_miss:
        parts.append(_will_miss([users.get(name, name) for name in drain.will_miss], width))
    lines: list[Line] = [parts[0]]
    for part in parts[1:]:
        if width_of(lines[-1]) + width_of(part) <= width:
            lines[-1] = [*lines[-1], *part]
        else:
            lines.append(part)
    return lines


def _will_miss(ids: list[str], width: int) -> Line:
    """Three of them, fewer where the ids are long: the number of the others is never cut away."""

    def said(named: int) -> Line:
        more = f" and {len(ids) - named} more" if len(ids) > named else ""
        return [(f"  W will miss: {', '.join(ids[:named])}{more}", WARN)]

    return first_fit(width, said(3), said(2), said(1))


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
                ("! " if not end.requested else "  ", BAD),
                ("exited: ", LABEL),
                (how, "bold"),
                (f"{when}{asked}", ""),
                (f"   in phase {end.phase}" if end.phase else "", ""),
                (_in_flight(end), ""),
            ]
        )
        out += [
            labelled("  cause:" if i == 0 else "        ", row) for i, row in enumerate(wrap(end.cause, width - 9)[:6])
        ]
        out += [labelled("  evidence:", end.evidence)] if end.evidence else []
    if view.reason and not _is_said(view.reason, end):
        out.append(labelled("  reason:", view.reason))
    if view.next_restart_in_s is not None:
        out.append(labelled("  restart in:", figures.seconds(view.next_restart_in_s)))
    return out or [[("the engine is gone", BAD)]]


def _is_said(reason: str, end: ExitInfo | None) -> bool:
    """The line of the exit tells it already."""
    return end is not None and ((bool(end.cause) and end.cause in reason) or reason == f"exit {end.code}")


def _in_flight(end: ExitInfo) -> str:
    if not end.running and not end.waiting:
        return ""
    return f"   in flight: {figures.count(end.running)} running, {figures.count(end.waiting)} waiting"


TWO_COLUMNS = 70
"""Width from which the figures of a request stand side by side."""


def detail(row: RequestView, width: int) -> list[Line]:
    """Everything known of one request."""
    short = [
        ("state", row.state),
        ("age", figures.seconds(row.age_s)),
        ("prompt tokens", figures.count(row.prompt_tokens)),
        ("prompt cached", figures.percent(row.cached_ratio)),
        ("output tokens", f"{figures.count(row.output_tokens)} of {figures.count(row.max_tokens)}"),
        ("blocks held", figures.count(row.blocks)),
        ("first token after", figures.seconds(row.ttft_s)),
        ("time per token", "-" if row.tpot_ms is None else f"{figures.milliseconds(row.tpot_ms)} ms"),
        ("blocks needed", figures.count(row.blocks_needed)),
        ("preemptions", str(row.preemptions)),
        ("client", str(row.client)),
        ("priority", str(row.priority)),
    ]
    lines = [_pair("id", row.id), _pair("external id", row.external_id or "-")]
    if width < TWO_COLUMNS:
        lines += [_pair(name, value) for name, value in short]
    else:
        half = width // 2
        lines += [[*fit(_pair(*a), half), *_pair(*b)] for a, b in zip(short[::2], short[1::2], strict=True)]
    lines.append(_pair("waits for", row.waits_for or "-"))
    if row.is_hog:
        lines.append([*_pair("hog", "")[:2], (f"! {row.note}", WARN)])
    return lines


def _pair(name: str, value: str) -> Line:
    return [(name.rjust(18), LABEL), ("  ", ""), (value, "bold")]


def explanation(found: Explanation | None, row: RequestView, width: int) -> list[Line]:
    """Why it waits, on whom and until when, or how long it still runs; nothing until that is known."""
    if found is None or found.request.id != row.id:
        return []
    start = figures.seconds(found.expected_start_s)
    pairs = [("why", found.because)]
    if row.state == "running":
        pairs.append(
            ("ends in about", f"{figures.seconds(found.eta_s)}, {figures.count(found.tokens_left)} tokens left")
        )
    else:
        pairs.append(("place in the line", figures.count(found.position)))
        pairs.append(("starts in about", f"{start}, at most {figures.count(found.expected_start_steps)} steps"))
        for number, holder in enumerate(found.holders[:5]):
            share = "" if holder.share is None else f" ({holder.share:.0%})"
            text = f"{holder.external_id or holder.id}  {figures.count(holder.blocks)} blocks{share}"
            pairs.append(("" if number else "held by", f"{text}, {figures.seconds(holder.eta_s)}"))
    pairs += [("note", note) for note in found.notes]
    out: list[Line] = [[]]
    for name, value in pairs:
        room = max(20, width - 20)
        for number, part in enumerate([value] if len(value) <= room else wrap(value, room)):
            out.append(_pair("" if number else name, part))
    return out


def event_line(events: tuple[EventView, ...], width: int) -> Line:
    """The youngest first, as many as fit whole; the first is cut when even it does not fit."""
    if not events:
        return [("nothing yet", LABEL)]
    out: Line = []
    for event in reversed(events):
        piece: Line = [(figures.clock(event.ts) + " ", LABEL), (event.type, ACCENT), (f" {event.text}", "")]
        if out and width_of(out) + 3 + width_of(piece) > width:
            break
        out += [("   ", ""), *piece] if out else piece
    return out


def event_lines(events: tuple[EventView, ...], rows: int) -> list[Line]:
    """One event a line, the youngest at the bottom."""
    shown = events[-rows:] if rows > 0 else ()
    return [[(figures.clock(e.ts), LABEL), (f"  {e.type:<14}  ", ACCENT), (e.text, "")] for e in shown] or [
        [("nothing yet", LABEL)]
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
                (name.ljust(12), LABEL),
                (figures.milliseconds(value).rjust(8) + " ms ", "bold"),
                ("█" * round(share * cells), ACCENT),
                (f" {share:.0%}" if value is not None else "", LABEL),
            ]
        )
    if slow := slow_texts(step)[0]:
        out += [[], [(slow, WARN)]]
    out.append([])
    buckets = filled_buckets(step)
    top = max((n for _, n in buckets), default=1)
    for name, n in buckets:
        out.append(
            [
                (f"{name} ms".rjust(12), LABEL),
                (f"{n:,}".rjust(8) + "    ", "bold"),
                ("█" * round(n / top * cells) or ("▏" if n else ""), ACCENT),
            ]
        )
    out.append([])
    per_row = max(1, (width - 10) // 8)
    recent = step.recent_ms[-per_row * max(0, min(6, rows - len(out))) :]
    for at in range(0, len(recent), per_row):
        numbers = "".join(figures.milliseconds(ms).rjust(8) for ms in recent[at : at + per_row])
        out.append([("youngest  " if at == 0 else " " * 10, LABEL), (numbers, "")])
    return out


def logs(snapshot: Snapshot, rows: int) -> list[Line]:
    lines = snapshot.log[-rows:] if rows > 0 else ()
    return [[(line.expandtabs(4), "")] for line in lines] or [[("no log lines", LABEL)]]


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
