"""Why a request waits, on whom, and until when; for one that runs, how fast and how long still.

Pure: a Scene (what the engine and the relay showed at one moment) goes in, an Explanation comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, median

from enginectl.control import RequestView
from enginectl.control_explain import Explanation, Holder, Limit
from enginectl.supervisor.forecast import Load, forecast

MAX_HOLDERS = 20
SMALL_STEP = 64
"""Tokens from which a step tells what prefill costs."""
RECENT = 16
"""Steps whose mean is the pace of now."""
ALIKE = 1.5
"""A batch up to so much larger or smaller has the same pace."""


@dataclass(frozen=True, slots=True)
class Scene:
    """`items`: those that run, then those that wait, each in the scheduler's order."""

    items: Sequence[RequestView]
    knows_order: bool = True
    """False: the engine shows no table; order and blocks are not known."""
    free_blocks: int | None = None
    total_blocks: int | None = None
    block_size: int = 16
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    kv_used_ratio: float | None = None
    steps: Sequence[tuple[int, float]] = ()
    """Measured: (tokens, s)."""
    decodes: Sequence[tuple[int, float]] = ()
    """Of those without prefill: (rows, s)."""
    step: int = 0
    paused: str = ""
    """The pause's mode."""
    is_sleeping: bool = False
    stalled: str = ""
    drain_left_s: float | None = None
    is_cordoned: bool = False

    @property
    def running(self) -> list[RequestView]:
        return [item for item in self.items if item.state == "running"]

    @property
    def waiting(self) -> list[RequestView]:
        return [item for item in self.items if item.state != "running"]


def explain(request: RequestView, scene: Scene) -> Explanation:
    """`request` is one of the scene's items."""
    found = Explanation(
        request=request, blocks_free=scene.free_blocks, blocks_total=scene.total_blocks, running=len(scene.running),
        max_num_seqs=scene.max_num_seqs, tokens_left=tokens_left(request, scene), step=scene.step,
        blocks_needed=request.blocks_needed if scene.knows_order else None,
    )  # fmt: skip
    step_s, prefill_s = step_times(scene.steps, scene.decodes, max(1, len(scene.running)))
    found.step_ms = None if step_s is None else step_s * 1000
    if request.state == "running":
        _explain_running(found, scene, step_s)
    else:
        _explain_waiting(found, scene, step_s, prefill_s)
    found.notes += _notes(found, scene)
    return found


def tokens_left(request: RequestView, scene: Scene) -> int | None:
    limit = request.max_tokens
    if limit is None:
        if scene.max_model_len is None:
            return None
        limit = scene.max_model_len - request.prompt_tokens
    return max(0, limit - request.output_tokens)


def step_times(
    steps: Sequence[tuple[int, float]], decodes: Sequence[tuple[int, float]], running: int = 1
) -> tuple[float | None, float]:
    """(s of a step that decodes for so many, s a prefill token adds), from the steps measured so far."""
    if not steps:
        return None, 0.0
    if not decodes:
        return mean(seconds for _, seconds in steps[-RECENT:]), 0.0
    most = max(SMALL_STEP, running * ALIKE)
    usual_s = median(seconds for _, seconds in decodes)
    adds = [max(0.0, seconds - usual_s) / tokens for tokens, seconds in steps if tokens > most]
    return _pace(decodes, running), median(adds) if adds else 0.0


def _pace(decodes: Sequence[tuple[int, float]], running: int) -> float:
    """Of the last steps for about as many; where none was yet, of the nearest sizes, and what more rows would cost at
    most. Older steps tell of another batch, and of a machine that had less or more to do."""
    alike = [seconds for rows, seconds in decodes if running / ALIKE <= rows <= running * ALIKE]
    if alike:
        return mean(alike[-RECENT:])
    nearest = min((rows for rows, _ in decodes), key=lambda rows: abs(rows - running))
    seconds = mean([seconds for rows, seconds in decodes if rows == nearest][-RECENT:])
    return seconds * max(1.0, running / max(1, nearest))


# ---------------------------------------------------------------- it runs


def _explain_running(found: Explanation, scene: Scene, step_s: float | None) -> None:
    request = found.request
    token_s = step_s or (request.tpot_ms / 1000 if request.tpot_ms else None)
    held, reason = _held(scene, runs=True)
    found.limit, found.because = held, reason or "it runs"
    if token_s:
        found.tok_s = 0.0 if held else 1 / token_s
        if found.tokens_left is not None and not held:
            found.eta_s = found.tokens_left * token_s
    if not request.output_tokens and not held:
        found.because = "its prompt is being computed"


def _held(scene: Scene, *, runs: bool) -> tuple[Limit, str]:
    """What holds everybody, if anything does."""
    if scene.is_sleeping:
        return "sleeping", "the engine sleeps; `wake` ends that"
    if scene.paused and not (runs and scene.paused == "wait"):
        return "paused", f"the scheduler is paused (mode {scene.paused}); `resume` ends that"
    if scene.stalled:
        return "stalled", scene.stalled
    return "", ""


# ---------------------------------------------------------------- it waits


def _explain_waiting(found: Explanation, scene: Scene, step_s: float | None, prefill_s: float) -> None:
    waiting = scene.waiting
    place = next((n for n, item in enumerate(waiting) if item.id == found.request.id), len(waiting))
    found.position = place + 1
    found.holders = _holders(scene, step_s)
    found.limit, why = _held(scene, runs=found.request.state == "preempted")
    if not found.limit:
        head = waiting[0] if waiting else found.request
        found.limit, why = _limit_of(head, scene)
        ahead = f"the first of them, {head.external_id or head.id}, waits: " if place else ""
        why = f"{place} ahead of it; {ahead}{why}" if place else why
        _foresee(found, scene, step_s, prefill_s)
    found.because = why


def _limit_of(head: RequestView, scene: Scene) -> tuple[Limit, str]:
    """What keeps the first of the line from starting."""
    running = len(scene.running)
    if scene.max_num_seqs is not None and running >= scene.max_num_seqs:
        return "sequences", f"all {scene.max_num_seqs} places run"
    if not scene.knows_order or scene.free_blocks is None:
        return "unknown", "this kind of engine does not tell its blocks"
    needed = head.blocks_needed or 0
    if needed > scene.free_blocks:
        return (
            "blocks",
            f"{needed:,} KV blocks are needed, {scene.free_blocks:,} of {scene.total_blocks or 0:,} are free",
        )
    busy = [item for item in scene.running if not item.output_tokens]
    if busy:
        return "tokens", f"the step's token budget goes to {len(busy)} prompts that are being computed"
    return "", "nothing holds it: it starts with the next step"


def _holders(scene: Scene, step_s: float | None) -> list[Holder]:
    """Who holds blocks, largest first."""
    rows = sorted((item for item in scene.running if item.blocks), key=lambda item: -(item.blocks or 0))
    return [
        Holder(
            id=item.id, external_id=item.external_id, blocks=item.blocks or 0,
            share=(item.blocks or 0) / scene.total_blocks if scene.total_blocks else None,
            tokens_left=(left := tokens_left(item, scene)),
            eta_s=None if step_s is None or left is None else left * step_s,
        )
        for item in rows[:MAX_HOLDERS]
    ]  # fmt: skip


def _foresee(found: Explanation, scene: Scene, step_s: float | None, prefill_s: float) -> None:
    """Writes the expected start, where it can be known."""
    lefts = {item.id: tokens_left(item, scene) for item in scene.items}
    if not scene.knows_order or scene.free_blocks is None or None in lefts.values():
        return
    loads = [
        Load(
            item.id, item.prompt_tokens + item.output_tokens, lefts[item.id] or 0, blocks=item.blocks or 0,
            blocks_to_start=item.blocks_needed or 0, order=order,
        )
        for order, item in enumerate(scene.items)
    ]  # fmt: skip
    running, waiting = loads[: len(scene.running)], loads[len(scene.running) :]
    _unshare(running, scene)
    start = forecast(
        found.request.id, running, waiting, free=scene.free_blocks, block_size=scene.block_size,
        max_num_seqs=scene.max_num_seqs or len(loads),
    )  # fmt: skip
    if start is None:
        return
    found.expected_start_steps = start.steps
    if step_s is not None:
        found.expected_start_s = start.steps * step_s + start.prefill_tokens * prefill_s


def _unshare(running: list[Load], scene: Scene) -> None:
    """A block that several hold is free only when the last of them ends: each counts for its part of what is used."""
    used = (scene.total_blocks or 0) - (scene.free_blocks or 0)
    held = sum(load.blocks for load in running)
    if used and held > used:
        for load in running:
            load.shared = load.blocks - load.blocks * used // held


def _notes(found: Explanation, scene: Scene) -> list[str]:
    notes = []
    if scene.drain_left_s is not None:
        needed_s = found.eta_s
        if needed_s is None and found.expected_start_s is not None and found.tokens_left is not None and found.step_ms:
            needed_s = found.expected_start_s + found.tokens_left * found.step_ms / 1000
        late = needed_s is not None and needed_s > scene.drain_left_s
        ending = "; it will miss that" if late else ""
        notes.append(f"the engine drains: requests have {max(0.0, scene.drain_left_s):.0f} s left{ending}")
    elif scene.is_cordoned:
        notes.append("the engine is cordoned: that holds new requests back, not this one")
    if found.request.preemptions:
        notes.append(f"preempted {found.request.preemptions} times: its blocks were given to requests before it")
    if not scene.knows_order:
        used = (
            "" if scene.kv_used_ratio is None else f"; {scene.kv_used_ratio:.0%} of its cache is used by all together"
        )
        notes.append(f"this kind of engine tells nobody which request holds how many blocks, nor its order{used}")
    return notes
