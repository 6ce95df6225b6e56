"""When the scheduler will start a request that waits: its rules played forward over counts of tokens and blocks.

Pure. Every request is taken to use all tokens it may, so the answer is late rather than early."""

from __future__ import annotations

from dataclasses import dataclass

MAX_WORK = 300_000
"""Rows moved before it gives up: some tens of milliseconds."""


@dataclass(slots=True)
class Load:
    """One request. `blocks_to_start`: for the first step of one that waits, net of what is cached."""

    id: str
    tokens: int
    """Known: prompt and output so far."""
    left: int
    """Tokens it may still get."""
    blocks: int = 0
    blocks_to_start: int = 0
    order: int = 0
    """Smaller runs first and is preempted last."""
    shared: int = 0
    """Of its blocks: those that do not become free with its end, since others hold them too."""


@dataclass(frozen=True, slots=True)
class Start:
    """The request is scheduled after so many steps; `prefill_tokens` of others are computed meanwhile."""

    steps: int
    prefill_tokens: int = 0


def forecast(
    target: str, running: list[Load], waiting: list[Load], *, free: int, block_size: int, max_num_seqs: int
) -> Start | None:
    """`running` and `waiting` in the scheduler's order; they are used up. None: not to be seen from here."""
    steps = prefill = work = 0
    while work < MAX_WORK:
        while waiting and len(running) < max_num_seqs and waiting[0].blocks_to_start <= free:
            load = waiting.pop(0)
            if load.id == target:
                return Start(steps, prefill)
            free -= load.blocks_to_start
            load.blocks = -(-load.tokens // block_size)
            prefill += load.tokens
            running.append(load)
            running.sort(key=lambda one: one.order)
        if not running:
            return None
        jump = _jump(running, free, block_size)
        work += len(running) + len(waiting) // 16
        steps += jump
        free = _advance(running, waiting, jump, free, block_size)
    return None


def _jump(running: list[Load], free: int, block_size: int) -> int:
    """Steps in which nobody ends and nobody can lack a block."""
    soonest_end = max(1, min(load.left for load in running))
    if free >= 2 * len(running):
        return min(soonest_end, block_size)
    return max(1, min(soonest_end, *(load.blocks * block_size - load.tokens for load in running)))


def _advance(running: list[Load], waiting: list[Load], jump: int, free: int, block_size: int) -> int:
    """Gives each its tokens, takes blocks for them, preempts from the end of the order; the blocks that are free."""
    for load in list(running):
        if load not in running:
            continue
        load.tokens += jump
        load.left -= jump
        if load.left <= 0:
            running.remove(load)
            free += load.blocks - load.shared
            continue
        wanted = max(0, -(-(load.tokens + 1) // block_size) - load.blocks)
        while wanted > free and running[-1] is not load:
            free += _preempt(running, waiting, block_size)
        if wanted > free:
            free += _preempt(running, waiting, block_size)
        else:
            free -= wanted
            load.blocks += wanted
    return free


def _preempt(running: list[Load], waiting: list[Load], block_size: int) -> int:
    """The last of the order goes back to the head of the line; the blocks that become free."""
    load = running.pop()
    held, load.blocks, load.shared = load.blocks - load.shared, 0, 0
    load.blocks_to_start = -(-load.tokens // block_size)
    waiting.insert(0, load)
    return held
