"""An engine's view as lines for people: the row of `ps`, the page of `status`, the ready block of `start`. Pure."""

from __future__ import annotations

from enginectl import text
from enginectl.control import EngineView, PhaseInfo, RequestView

PS_HEADERS = ("NAME", "STATE", "PID", "UP", "RUN", "WAIT", "KV%", "TOK/S", "STEP p50", "MODEL")
REQUEST_HEADERS = ("ID", "STATE", "AGE", "PROMPT", "OUT/MAX", "BLOCKS", "CACHED", "TTFT", "TPOT", "CLIENT", "NOTE")
ALIVE = frozenset(
    {
        "starting",
        "ready",
        "idle",
        "busy",
        "saturated",
        "paused",
        "sleeping",
        "cordoned",
        "draining",
        "stopping",
        "stalled",
        "backoff",
        "lost",
        "unreachable",
    }
)
SERVING = frozenset({"ready", "idle", "busy", "saturated"})


def ps_row(view: EngineView) -> list[str]:
    alive = view.state in ALIVE
    stats = view.stats if alive else None
    pid = view.process.pid if view.process and alive else None
    note = _end_note(view)
    model = text.one_line(view.model, 60)
    return [
        view.name,
        view.state,
        str(pid) if pid else text.UNKNOWN,
        text.seconds(view.uptime_s) if alive and view.uptime_s else text.UNKNOWN,
        text.number(stats.running) if stats else text.UNKNOWN,
        text.number(stats.waiting) if stats else text.UNKNOWN,
        text.percent(stats.kv_used_ratio) if stats else text.UNKNOWN,
        text.number(stats.decode_tok_s) if stats else text.UNKNOWN,
        text.milliseconds(stats.step.p50_ms) if stats else text.UNKNOWN,
        f"{model}   ({note})" if note else model,
    ]


def _end_note(view: EngineView) -> str:
    if view.state not in ("exited", "failed"):
        told = ("stalled", "backoff", "lost", "unreachable", "starting")
        again = text.count(view.restarts, "restart") if view.restarts else ""
        return text.one_line(view.reason, 60) if view.state in told else again
    parts = [text.exit_text(view.last_exit) or text.one_line(view.reason, 60)]
    if view.last_exit is not None:
        parts.append(text.ago(view.last_exit.at))
    return ", ".join(part for part in parts if part)


# ---------------------------------------------------------------- ready, phases


def ready_lines(view: EngineView) -> list[str]:
    """Whom an engine serves, and its metadata once it is ready."""
    outside = _outside(view)
    ready = view.ready
    if ready is None:
        return outside
    tokens = ready.kv_cache_size_tokens or ready.num_gpu_blocks * ready.block_size
    length = text.number(ready.max_model_len)
    asked = view.asked.get("max_model_len")
    if isinstance(asked, int) and asked > ready.max_model_len:
        length += f" (asked {asked:,}; cut to fit KV)"
    full = ready.kv_cache_max_concurrency or tokens / max(1, ready.max_model_len)
    return outside + text.pairs(
        [
            ("max_model_len", length),
            (
                "kv cache",
                f"{ready.num_gpu_blocks:,} blocks × {ready.block_size} = {tokens:,} tokens, "
                f"{full:.1f} full-length requests",
            ),
            (
                "limits",
                f"{text.number(ready.max_num_seqs)} seqs, {text.number(ready.max_num_batched_tokens)} batched tokens",
            ),
            (
                "dtype",
                f"{ready.dtype}{_rounded(view)}   tp={ready.tensor_parallel_size} "
                f"pp={ready.pipeline_parallel_size} dp={ready.data_parallel_size}",
            ),
        ]
    )


def _rounded(view: EngineView) -> str:
    bits = view.asked.get("quantization", "none")
    return "" if bits in ("none", None) else f" ({bits} weights)"


def _outside(view: EngineView) -> list[str]:
    lines = [f"  frontend         {text.one_line(view.frontend, 250)}"] if view.frontend else []
    return lines + ([f"  serves           {view.http}"] if view.http else [])


def phase_line(phase: PhaseInfo, width: int | None = None) -> str:
    """`  ✔ load weights          11.4s   15.2 GiB in 8 shards   (last 12.0s)` of a phase that ended. The detail gives
    way where the line is wider than `width`."""
    took = f"{phase.took_s:.1f}s" if phase.took_s is not None else ""
    last = f"   (last {phase.last_took_s:.1f}s)" if phase.last_took_s is not None else ""
    start = f"  ✔ {phase.name:<20} {took:>7}   "
    room = 100 if width is None else max(0, min(100, width - len(start) - len(last)))
    return f"{start}{text.one_line(phase.detail, room)}".rstrip() + last


def timeline_lines(phases: list[PhaseInfo]) -> list[str]:
    """A start from its first phase to its last, each against the last start that became ready."""
    lines = []
    for phase in phases:
        if phase.took_s is not None:
            lines.append(phase_line(phase))
        else:
            last = f"   last start took {text.seconds(phase.last_took_s)}" if phase.last_took_s is not None else ""
            lines.append(f"  … {phase.name:<20} since {text.seconds(phase.began_s)}{last}")
    return lines


def running_phase_line(phase: PhaseInfo, elapsed_s: float, tick: int) -> str:
    spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[tick % 10]
    last = f"last start took {text.seconds(phase.last_took_s)}" if phase.last_took_s is not None else phase.detail
    return f"  {spinner} {phase.name:<20} {text.clock(elapsed_s):>7}   {last:<28} Ctrl-C detaches"


# ---------------------------------------------------------------- status


def status_lines(view: EngineView) -> list[str]:
    """The page of one engine, ending with what to run next."""
    lines = [_headline(view)]
    if view.state in ("exited", "failed"):
        lines += _post_mortem(view)
    else:
        lines += _living(view)
    first, *others = next_commands(view)
    return [*lines, "", f"  next:  {first}", *(f"         {command}" for command in others)]


def _headline(view: EngineView) -> str:
    pid = f"   pid {view.process.pid}" if view.process and view.state in ALIVE else ""
    up = f"   up {text.seconds(view.uptime_s)}" if view.uptime_s and view.state in ALIVE else ""
    model = f"   {text.one_line(view.model, 60)}" if view.model else ""
    instance = f"   instance {view.instance[:6]}" if view.instance else ""
    return f"{view.name}  {view.state}{pid}{up}{model}{instance}"


def _living(view: EngineView) -> list[str]:
    lines = []
    if view.reason:
        lines.append(f"  {text.one_line(view.reason)}")
    if view.cordoned and view.state != "cordoned":
        lines.append("  cordoned: new requests are refused")
    if view.state == "starting":
        lines += timeline_lines(view.phases)
    if view.next_restart_in_s is not None:
        lines.append(f"  restarts in {text.seconds(view.next_restart_in_s)}")
    lines += ready_lines(view)
    lines += _figures(view)
    if view.metrics:
        lines.append(f"  metrics          {view.metrics}")
    if view.restarts:
        lines.append(f"  restarts         {view.restarts}   policy {view.restart_policy}")
    if view.last_exit is not None and (view.restarts or view.state == "backoff"):
        lines += [
            f"  last end         {text.exit_text(view.last_exit)} {text.ago(view.last_exit.at)}  "
            f"{text.one_line(view.last_exit.cause, 200)}".rstrip()
        ]
    return lines


def _figures(view: EngineView) -> list[str]:
    stats = view.stats
    if stats is None:
        return []
    kv = text.UNKNOWN
    if stats.kv_used_ratio is not None:
        kv = f"{stats.kv_used_ratio * 100:.0f}%"
        if stats.kv_blocks is not None:
            kv += f" ({text.number(stats.kv_used_blocks)} of {text.number(stats.kv_blocks)} blocks)"
    step = stats.step
    derived = " (derived)" if step.derived else ""
    rows = [
        (
            "requests",
            f"{stats.running:,} running, {stats.waiting:,} waiting   finished {stats.finished_total:,}, "
            f"aborted {stats.aborted_total:,}, failed {stats.failed_total:,}",
        ),
        ("kv used", kv),
        (
            "throughput",
            f"decode {stats.decode_tok_s:,.0f} tok/s, prefill {stats.prefill_tok_s:,.0f} tok/s   "
            f"(last {stats.window_s:.0f}s)",
        ),
        (
            "step",
            f"p50 {text.milliseconds(step.p50_ms)}  p95 {text.milliseconds(step.p95_ms)}  "
            f"p99 {text.milliseconds(step.p99_ms)}{derived}   step {stats.step_counter:,}",
        ),
    ]
    if stats.loop_age_s is not None:
        rows.append(("loop", f"last turn {text.seconds(stats.loop_age_s)} ago"))
    for label, value in (("rejected", stats.rejected_messages), ("dropped", stats.dropped_outputs)):
        if value:
            rows.append((label, f"{value:,} {'messages that could not be read' if label == 'rejected' else 'outputs'}"))
    width = max(len("max_model_len"), *(len(label) for label, _ in rows))
    return [f"  {label:<{width}}  {value}" for label, value in rows]


def _post_mortem(view: EngineView) -> list[str]:
    end = view.last_exit
    if end is None:
        lines = [f"  {text.one_line(view.reason)}"] if view.reason else []
        return lines + (["", "  how far the start came:", *timeline_lines(view.phases)] if _is_unfinished(view) else [])
    rows = [
        (
            "ended",
            f"{text.exit_text(end) or view.reason or 'unknown'}   {text.ago(end.at)}"
            f"{'   (asked for)' if end.requested else ''}".rstrip(),
        )
    ]
    if end.phase:
        rows.append(("phase", end.phase))
    elif end.step is not None:
        rows.append(("step", f"{end.step:,} was its last"))
    if end.running is not None and end.waiting is not None:
        rows.append(("in flight", f"{end.running:,} running, {end.waiting:,} waiting"))
    if end.aborted:
        rows.append(("aborted", f"{text.count(end.aborted, 'request')} by the stop or drain that ended it"))
    if end.cause:
        rows.append(("cause", text.one_line(end.cause)))
    elif view.reason and not end.requested:
        rows.append(("reason", text.one_line(view.reason)))
    if end.up_s is not None:
        rows.append(("was up", text.seconds(end.up_s)))
    rows.append(("restarts", f"{view.restarts}   policy {view.restart_policy}"))
    if end.evidence:
        rows.append(("evidence", end.evidence))
    if view.log:
        rows.append(("log", view.log))
    lines = text.pairs(rows)
    if end.phase and view.phases and not end.requested:
        lines += ["", "  how far the start came:", *timeline_lines(view.phases)]
    return lines


def _is_unfinished(view: EngineView) -> bool:
    return any(phase.took_s is None for phase in view.phases)


def next_commands(view: EngineView) -> list[str]:
    """What a person would run now."""
    name = view.name
    match view.state:
        case "exited":
            return [f"enginectl start {name}", f"enginectl logs {name} -n 50"]
        case "failed":
            return [f"enginectl logs {name} -n 50", f"enginectl start {name}"]
        case "stalled":
            return [f"enginectl stacks {name}", f"enginectl requests {name}", f"enginectl restart {name}"]
        case "starting" | "backoff":
            return [f"enginectl wait {name} --for ready", f"enginectl logs {name} -f"]
        case "draining" | "cordoned":
            return [f"enginectl uncordon {name}", f"enginectl requests {name}"]
        case "unreachable":
            return [f"enginectl kill {name}", f"enginectl logs {name} --supervisor -n 50"]
        case "lost":
            return [f"enginectl wait {name} --for stopped", f"enginectl start {name}"]
        case "busy" | "saturated":
            return [f"enginectl requests {name}", f"enginectl top {name}"]
        case _:
            return [f"enginectl generate -e {name} 'Once upon a time'", f"enginectl top {name}"]


# ---------------------------------------------------------------- requests


def short_id(request: RequestView) -> str:
    return request.external_id or request.id


def request_row(request: RequestView) -> list[str]:
    maximum = text.number(request.max_tokens)
    blocks = text.number(request.blocks)
    if request.state == "waiting" and request.blocks_needed:
        blocks = f"({request.blocks_needed:,})"
    cached = text.UNKNOWN if request.cached_ratio is None else f"{request.cached_ratio * 100:.0f}%"
    note = request.note if request.is_hog and request.note else request.waits_for
    return [
        text.one_line(short_id(request), 100),
        request.state,
        f"{request.age_s:.1f}s",
        text.number(request.prompt_tokens),
        f"{request.output_tokens:,}/{maximum}",
        blocks,
        cached,
        text.seconds(request.ttft_s),
        text.milliseconds(request.tpot_ms),
        str(request.client),
        ("hog: " if request.is_hog else "") + text.one_line(note, 80),
    ]
