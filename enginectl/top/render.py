"""One frame: render(snapshot, ui, width, height) -> Frame. Pure: the same values give the same picture.

Puts the panels together, gives up parts on small screens (layout.PARTS), dims what is of the past, and draws dialog
and help over it. height None is for paper: as tall as it takes, no footer."""

from __future__ import annotations

from collections.abc import Sequence

from enginectl.control import EngineView, RequestView
from enginectl.top import figures, overlays, panels, table, views
from enginectl.top.layout import (
    MIN_HEIGHT,
    MIN_WIDTH,
    Frame,
    Line,
    beside,
    between,
    box,
    dimmed,
    first_fit,
    overlay,
    shed,
    split_width,
    width_of,
)
from enginectl.top.snapshot import DEAD_STATES, Snapshot
from enginectl.top.state import PANELS, Ui, cursor_index, rows_of
from enginectl.top.styles import ACCENT, BAD, GOOD, LABEL, NAME, WARN

STATE_STYLE = {
    "ready": GOOD,
    "idle": GOOD,
    "busy": GOOD,
    "saturated": WARN,
    "starting": WARN,
    "draining": WARN,
    "stopping": WARN,
    "paused": WARN,
    "sleeping": WARN,
    "cordoned": WARN,
    "stalled": BAD,
    "failed": BAD,
    "exited": BAD,
    "backoff": BAD,
    "lost": BAD,
    "unreachable": BAD,
}
PAPER_ROWS = 40
"""Requests on a snapshot that goes to paper or a pipe."""


def render(
    snapshot: Snapshot, ui: Ui, width: int, height: int | None, *, now: float, ascii_only: bool = False
) -> Frame:
    """`now` is wall clock, s: only the age of a frozen picture depends on it."""
    if height is not None and (width < MIN_WIDTH or height < MIN_HEIGHT):
        return Frame([one_line(snapshot, ui)], width, height=height, ascii_only=ascii_only)
    head = [header(snapshot, ui, width, now), *banners(snapshot, width)]
    foot = [] if height is None else footer(ui, width)
    room = None if height is None else height - len(head) - len(foot)
    lines = body(snapshot, ui, width, room, height)
    if snapshot.is_dimmed:
        lines = dimmed(lines)
    if room is not None:
        lines = (lines + [[]] * (room - len(lines)))[:room]
    if ui.view in ("help", "figures"):
        window = overlays.help_box(width) if ui.view == "help" else overlays.words_box(width)
        lines = overlay(lines, window, width)
    if ui.dialog is not None:
        lines = overlay(lines, overlays.dialog_box(ui.dialog, width, len(lines)), width)
    return Frame([*head, *lines, *foot], width, height=height, ascii_only=ascii_only)


# ---------------------------------------------------------------- around the body


def header(snapshot: Snapshot, ui: Ui, width: int, now: float) -> Line:
    view = snapshot.view
    style = STATE_STYLE.get(snapshot.state, LABEL)
    start: Line = [
        (" enginectl top", "bold"),
        (" · ", LABEL),
        (snapshot.name, NAME),
        (" · ", LABEL),
        (snapshot.state, style),
    ]
    up: Line = [(f" · up {figures.span(view.uptime_s)}", "")] if view and not snapshot.is_dead else []
    pace: Line = [(f" · {figures.interval(ui.interval_s)}", LABEL)] if not ui.is_replay else []
    observer_us = panels.stats_of(snapshot).step.observer_us
    cost: Line = [(f" · observer {observer_us:.0f}µs/step", LABEL)] if observer_us is not None else []
    model: Line = [(f" · {view.model.rstrip('/').rsplit('/', 1)[-1]}", LABEL)] if view and view.model else []
    age: Line = []
    if ui.is_replay:
        age = [(f" · replay {ui.place[0]} of {ui.place[1]} · {figures.clock(snapshot.ts)}", WARN)]
    elif ui.held is not None:
        age = [(f" · frozen {figures.span(now - snapshot.ts)} ago", WARN)]
    right: Line = [("" if ui.allow_actions else "[read-only] ", LABEL), ("?=help ", LABEL)]
    room = width - width_of(right) - 1
    bare: Line = [(" ", ""), *start[2:], *age]
    left = first_fit(
        room,
        [*start, *age, *up, *pace, *cost, *model],
        [*start, *age, *up, *pace, *cost],
        [*start, *age, *up, *pace],
        [*start, *age, *up],
        [*start, *age],
        bare,
    )
    return between(left, right, width)


def banners(snapshot: Snapshot, width: int) -> list[Line]:
    """What must not be missed: the link, a drain, why the engine holds still."""
    out: list[Line] = []
    link, view = snapshot.link, snapshot.view
    if link.state == "lost":
        again = f", next try in {figures.seconds(link.retry_in_s)}" if link.retry_in_s is not None else ""
        data = f" · data is {figures.span(link.age_s)} old" if view else ""
        out.append([(f" ! unreachable: {link.reason or 'no answer'}{again}{data}", BAD)])
    elif link.state == "stale":
        out.append([(f" W stale {figures.span(link.age_s)}: the supervisor answers, but nothing new comes", WARN)])
    elif link.state == "connecting":
        out.append([(" connecting ...", WARN)])
    if view is None:
        return out
    if view.held_s is not None:
        clients = f"{view.held:,} request{'' if view.held == 1 else 's'}"
        out.append([(f" W holding {clients} for {figures.span(view.held_s)}: their clients wait", WARN)])
    if view.drain is not None and snapshot.state == "draining":
        out += views.drain_lines(view.drain, snapshot.requests, width)
    elif view.reason and snapshot.state not in (*DEAD_STATES, "starting"):
        out.append([(f" {snapshot.state}: {view.reason}", STATE_STYLE.get(snapshot.state, ""))])
    if view.cordoned and snapshot.state not in ("cordoned", "draining"):
        out.append([(" W cordoned: new requests are refused", WARN)])
    return out


def footer(ui: Ui, width: int) -> list[Line]:
    """One line of keys, or what the tool has to say, whole where three lines can hold it: a path is of no use cut."""
    if ui.typing is not None:
        return [[(" filter: ", "bold"), (ui.typing, ""), ("_", "reverse"), ("   Enter keeps it, Esc drops it", LABEL)]]
    if ui.notice:
        return [[(f" {row}", WARN)] for row in views.wrap(ui.notice, max(1, width - 1))[:3]]
    return [_hints(ui, width)]


def _hints(ui: Ui, width: int) -> Line:
    actions = [("a", "abort…"), ("D", "drain…")] if ui.allow_actions else []
    more = [("C", "cordon…"), ("x", "stacks…")] if ui.allow_actions else []
    hints = [
        ("q", "quit"),
        ("p", "pause"),
        *actions,
        ("/", "filter"),
        ("s", "sort"),
        ("Enter", "detail"),
        ("t", "step table"),
        ("l", "logs"),
        ("e", "expand"),
        ("+/-", "rate"),
        *more,
    ]
    if ui.is_replay:
        hints = [
            ("q", "quit"),
            ("]", "next"),
            ("[", "back"),
            ("} {", "by ten"),
            ("L", "end"),
            *hints[2:7],
            ("?", "keys"),
        ]
    line: Line = [(" ", "")]
    for key, text in hints:
        if width_of(line) + len(key) + len(text) + 3 > width:
            break
        line += [(key, "bold"), (f" {text}  ", LABEL)]
    return line


def one_line(snapshot: Snapshot, ui: Ui) -> Line:
    """Everything a screen below 40x10 can hold; an open question comes first, so that no key answers it unseen."""
    if ui.dialog is not None:
        return [*overlays.dialog_choice(ui.dialog), (ui.dialog.target or ui.dialog.engine, "bold")]
    if ui.notice or ui.typing is not None:
        return footer(ui, MIN_WIDTH)[0]
    stats = panels.stats_of(snapshot)
    away = "" if snapshot.link.is_live else f"{snapshot.link.state} "
    return [
        (away, BAD),
        (f"{snapshot.name} ", "bold"),
        (f"{snapshot.state} ", STATE_STYLE.get(snapshot.state, "")),
        (
            f"r{stats.running} w{stats.waiting} kv{figures.percent(stats.kv_used_ratio)} "
            f"{figures.short(stats.decode_tok_s)}t/s {figures.milliseconds(stats.step.p50_ms)}ms",
            "",
        ),
    ]


# ---------------------------------------------------------------- the body


def body(snapshot: Snapshot, ui: Ui, width: int, room: int | None, height: int | None) -> list[Line]:
    tall = room if room is not None else PAPER_ROWS
    stats = panels.stats_of(snapshot)
    match ui.view:
        case "steps":
            return box(panels.step_title(stats.step), views.steps(stats.step, width - 4, tall - 2), width, room)
        case "logs":
            return box(
                [("log", "bold"), (f" {snapshot.view.log if snapshot.view else ''}", LABEL)],
                views.logs(snapshot, tall - 2),
                width,
                room,
            )
        case "detail":
            return _detail(snapshot, ui, width, room)
        case "panel":
            return _expanded(snapshot, ui, width, tall)
    if snapshot.view is not None and snapshot.state == "starting":
        return _starting(snapshot, ui, snapshot.view, width, room)
    if snapshot.view is not None and snapshot.is_dead and not panels.has_figures(snapshot):
        return [*_ended(snapshot, width), *_starting(snapshot, ui, snapshot.view, width, room)]
    return _usual(snapshot, ui, width, room, shed(width, height))


def _usual(snapshot: Snapshot, ui: Ui, width: int, room: int | None, gone: frozenset[str]) -> list[Line]:
    top = _ended(snapshot, width)
    if "sparklines" in gone:
        top = top[:4] or panels.strip(snapshot.view, panels.stats_of(snapshot), width)
    else:
        top += _small_panels(snapshot, width, gone)
        top += _step_panel(snapshot, width, gone)
    events = (
        [] if "events" in gone else box([("events", "bold")], [views.event_line(snapshot.events, width - 4)], width)
    )
    left = None if room is None else max(4, room - len(top) - len(events))
    if room is not None and top and left is not None and len(top) + left + len(events) > room:
        events = []
    return [*top, *_requests(snapshot, ui, width, left), *events]


def _ended(snapshot: Snapshot, width: int) -> list[Line]:
    if not snapshot.is_dead or snapshot.view is None:
        return []
    return box([(f"engine {snapshot.state}", BAD)], views.post_mortem(snapshot.view, width - 4), width, style=BAD)


def _small_panels(snapshot: Snapshot, width: int, gone: frozenset[str]) -> list[Line]:
    names = [name for name in panels.SMALL if name not in gone]
    rows = 2 if {"throughput", "process"} <= gone else (3 if "process" in gone and width >= 80 else 4)
    wide = split_width(width, [panels.SHARES[name] for name in names])
    made = [
        box(
            [(f"{name}, last" if snapshot.is_dead else name, "bold")],
            panels.SMALL[name](snapshot, cells - 4, "sparklines" not in gone)[:rows],
            cells,
            rows + 2,
        )
        for name, cells in zip(names, wide, strict=True)
    ]
    return beside(made)


def _step_panel(snapshot: Snapshot, width: int, gone: frozenset[str]) -> list[Line]:
    step = panels.stats_of(snapshot).step
    lines = [panels.step_spark(step, width - 4, "sparklines" not in gone)]
    if "histogram" not in gone:
        lines.append(panels.histogram(step, width - 4))
    if "split" not in gone:
        lines.append(panels.split_line(step, width - 4))
    return box(panels.step_title(step), lines, width)


def _requests(snapshot: Snapshot, ui: Ui, width: int, height: int | None) -> list[Line]:
    """The table. Only rows on the screen become text."""
    rows = rows_of(ui, snapshot)
    late: list[Line] = [[(f"W {snapshot.requests_error}", WARN)]] if snapshot.requests_error else []
    space = min(len(rows), PAPER_ROWS) if height is None else max(0, height - 3 - len(late))
    at = cursor_index(ui, rows)
    more = len(rows) > space > 1
    shown = space - 1 if more else space
    first = max(0, min(at - shown // 2, len(rows) - shown))
    visible = rows[first : first + shown]
    columns = table.columns_for(width - 4, rows)
    ids = table.id_width(columns, rows, width - 4)
    lines = [*late, table.header(columns, ids, width - 4, ui.sort)]
    lines += [
        table.row_line(row, columns, ids, width - 4, height is not None and first + i == at)
        for i, row in enumerate(visible)
    ]
    if more:
        above, below = first, len(rows) - first - shown
        lines.append([(f"  … {f'{above:,} above, ' if above else ''}{below:,} below", LABEL)])
    if not rows:
        lines.append([(f"  {_why_empty(snapshot, ui)}", LABEL)])
    return box(_requests_title(snapshot, ui, rows), lines, width, height)


def _requests_title(snapshot: Snapshot, ui: Ui, rows: Sequence[RequestView]) -> Line:
    total = max(snapshot.requests_total, len(snapshot.requests))
    wanted = ui.typing if ui.typing is not None else ui.filter
    shown = f"{len(rows):,} of {total:,}" if len(rows) != total else f"{total:,}"
    last = " last seen" if snapshot.is_dead and total else ""
    return [
        ("requests ", "bold"),
        (f"{shown}{last}", "bold"),
        (f" · sort: {ui.sort} {table.arrow(ui.sort, ui.invert)} · filter: {wanted or '-'}", LABEL),
    ]


def _why_empty(snapshot: Snapshot, ui: Ui) -> str:
    if snapshot.view is None:
        return "no data yet"
    return "nothing matches the filter" if ui.filter or ui.typing else "none in flight"


def _starting(snapshot: Snapshot, ui: Ui, view: EngineView, width: int, room: int | None) -> list[Line]:
    """The phases of the start, or of the last one when the engine is dead; what is left goes to events, or to the
    requests whose clients wait for the engine."""
    last = (
        f" · last start took {figures.seconds(view.last_ready_after_s)}" if view.last_ready_after_s is not None else ""
    )
    title: Line = [("starting", WARN), (f" {figures.span(view.uptime_s)}{last}", LABEL)]
    if snapshot.is_dead:
        title = [("its last start", "bold"), (last, LABEL)]
    out = box(title, views.phases(view, width - 4), width) if view.phases or not snapshot.is_dead else []
    left = None if room is None else max(3, room - len(out) - len(_ended(snapshot, width)))
    if view.held_s is not None and not snapshot.is_dead:
        return [*out, *_requests(snapshot, ui, width, left)]
    return [*out, *box([("events", "bold")], views.event_lines(snapshot.events, (left or 12) - 2), width, left)]


def _detail(snapshot: Snapshot, ui: Ui, width: int, room: int | None) -> list[Line]:
    rows = rows_of(ui, snapshot)
    if not rows:
        return box([("request", "bold")], [[(_why_empty(snapshot, ui), LABEL)]], width, room)
    row = rows[cursor_index(ui, rows)]
    if ui.cursor and row.id != ui.cursor:
        gone: Line = [(ui.cursor, "bold"), (" is no longer in flight. Esc goes back.", "")]
        return box([("request", "bold")], [gone], width, room)
    lines = [*views.detail(row, width - 4), *views.explanation(snapshot.explanation, row, width - 4)]
    if room is not None and len(lines) > room - 2 > 0:
        rest = len(lines) - (room - 3)
        lines = [*lines[: room - 3], [(f"  … {rest} more lines: a taller screen, or enginectl explain", LABEL)]]
    return box([("request ", "bold"), (row.external_id or row.id, NAME)], lines, width, room)


def _expanded(snapshot: Snapshot, ui: Ui, width: int, tall: int) -> list[Line]:
    """One panel on the whole screen."""
    name = PANELS[ui.panel]
    stats = panels.stats_of(snapshot)
    if name == "requests":
        return _requests(snapshot, ui, width, tall)
    if name == "step timing":
        return box(panels.step_title(stats.step), views.steps(stats.step, width - 4, tall - 2), width, tall)
    if name == "events":
        return box([("events", "bold")], views.event_lines(snapshot.events, tall - 2), width, tall)
    lines = panels.SMALL[name](snapshot, width - 4, False)
    curves = [(key, stats.history[key]) for key in HISTORY_OF.get(name, ()) if stats.history.get(key)]
    high = max(1, (tall - 2 - len(lines)) // max(1, len(curves)) - 2)
    for key, values in curves:
        title = f"{key.replace('_', ' ')}, last {len(values)} s, max {_peak(key, values)}"
        lines += [[], [(title, LABEL)], *([(row, ACCENT)] for row in figures.graph(values, width - 4, min(high, 12)))]
    return box([(name, "bold")], lines, width, tall)


HISTORY_OF = {
    "queues": ("running", "waiting"),
    "kv cache": ("kv_used_ratio",),
    "throughput": ("decode_tok_s", "prefill_tok_s"),
}


def _peak(key: str, values: Sequence[float]) -> str:
    peak = max(values, default=0.0)
    return figures.percent(peak) if key.endswith("ratio") else figures.count(peak)
