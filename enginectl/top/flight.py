"""A flight record as snapshots, so that the dashboard can look at what an engine did before it died.

Enters: the lines of flight.jsonl, or a bundle of `enginectl dump`. Leaves: one Snapshot for each span of time, made
with the same arithmetic as live figures. No requests: the record has none."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from engine.messages import EngineCoreReadyResponse, SchedulerStats, StepTimings
from enginectl.control import EngineView, EventView
from enginectl.control_flight import FlightHead, FlightStep
from enginectl.control_stats import Stats
from enginectl.errors import UsageError
from enginectl.top.snapshot import Link, Snapshot

T = TypeVar("T")
FILE = "flight.jsonl"
MAX_FRAMES = 240
MIN_SPAN_S = 0.1
MAX_MEMBER_BYTES = 64 * 1024**2


def is_bundle(head: bytes) -> bool:
    """By the first bytes: gzip."""
    return head[:2] == b"\x1f\x8b"


def from_bundle(path: Path) -> list[Snapshot]:
    """The youngest flight record in it. Raises UsageError."""
    try:
        with tarfile.open(path, "r:gz") as tar:
            names = sorted((name for name in tar.getnames() if name.endswith(f"/{FILE}")), key=_age_order)
            if not names:
                raise UsageError(f"{path} holds no {FILE}")
            lines = _read(tar, names[-1]).splitlines()
            events = _events(tar, names[-1].removesuffix(FILE) + "events.json")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UsageError(f"cannot read {path}", cause=str(error)) from None
    return from_lines(lines, events)


def _age_order(name: str) -> tuple[bool, str]:
    """The bundle's own record before those of its evidence, of these the youngest."""
    return "/evidence/" not in name, name


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    return b"" if file is None else file.read(MAX_MEMBER_BYTES)


def _events(tar: tarfile.TarFile, name: str) -> list[EventView]:
    try:
        return msgspec.json.decode(_read(tar, name), type=list[EventView])
    except (KeyError, msgspec.MsgspecError, RecursionError):
        return []


def from_lines(lines: Sequence[bytes], events: Sequence[EventView] = ()) -> list[Snapshot]:
    """Empty when the first line is not the head of a flight record. Torn lines are left out."""
    head = _decode(lines[0], FlightHead) if lines else None
    if head is None or b'"flight"' not in lines[0]:
        return []
    steps = [step for line in lines[1:] if (step := _decode(line, FlightStep)) is not None]
    return list(_frames(head, steps, events))


def _decode(line: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _frames(head: FlightHead, steps: Sequence[FlightStep], events: Sequence[EventView]) -> Iterator[Snapshot]:
    from enginectl.supervisor.stats import StatsBook

    if not steps:
        return
    book = StatsBook(_ready(head))
    span_s = max(MIN_SPAN_S, (steps[-1].t - steps[0].t) / MAX_FRAMES)
    due = steps[0].t + span_s
    for place, step in enumerate(steps):
        book.on_step(_stats(step, head), step.t)
        book.decode.add(step.t, max(0, step.tokens - step.prefill_tokens))
        is_last = place + 1 == len(steps)
        if step.t < due and not is_last:
            continue
        due = max(due + span_s, step.t)
        book.tick(step.t, step.running, step.waiting)
        yield _snapshot(head, step, book.snapshot(step.t, step.running, step.waiting), events)


def _ready(head: FlightHead) -> EngineCoreReadyResponse | None:
    if head.kv_blocks is None:
        return None
    return EngineCoreReadyResponse(
        max_model_len=0, num_gpu_blocks=head.kv_blocks, block_size=0, dtype="", max_num_seqs=head.max_num_seqs
    )


def _stats(step: FlightStep, head: FlightHead) -> SchedulerStats:
    stats = SchedulerStats(
        num_running_reqs=step.running,
        num_waiting_reqs=step.waiting,
        step_counter=step.step,
        num_scheduled_tokens=step.tokens,
        num_prefill_tokens=step.prefill_tokens,
        num_preempted=step.preempted,
        free_blocks=step.free_blocks,
    )
    if head.kv_blocks and step.free_blocks is not None:
        stats.kv_cache_usage = 1 - step.free_blocks / head.kv_blocks
    elif step.kv_used_ratio is not None:
        stats.kv_cache_usage = step.kv_used_ratio
    parts = (step.schedule_ms, step.execute_ms, step.sample_ms, step.update_ms)
    if step.execute_ms is not None:
        schedule, execute, sample, update = (part or 0.0 for part in parts)
        stats.step_timings = StepTimings(
            schedule_ms=schedule,
            execute_ms=execute,
            sample_ms=sample,
            update_ms=update,
            total_ms=schedule + execute + sample + update,
        )
    return stats


def _snapshot(head: FlightHead, step: FlightStep, stats: Stats, events: Sequence[EventView]) -> Snapshot:
    ts = step.t + head.wall_offset_s
    view = EngineView(
        name=head.name or "flight",
        state="busy" if step.running + step.waiting else "idle",
        instance=head.instance,
        engine=head.engine,
        model=head.model,
        stats=stats,
        observed_at=ts,
    )
    seen = tuple(event for event in events if event.ts <= ts)
    return Snapshot(
        ts=ts,
        seq=step.step,
        name=head.name or "flight",
        link=Link(state="live"),
        view=view,
        requests_error="a flight record has no requests",
        events=seen[-50:],
    )
