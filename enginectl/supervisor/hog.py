"""Which request holds far more of the engine than its fair share, so that others wait for it or will: a pure function
over the request table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from enginectl.control import RequestView

FACTOR = 3.0
BEGUN = ("running", "preempted")
MIN_OTHERS = 2
MIN_SHARE = 0.02
MIN_TOKENS = 256
"""A smaller part of the cache is nobody's trouble, nor are fewer tokens, held or to come, however little the others
have."""


def mark_hogs(items: Sequence[RequestView], total_blocks: int | None) -> None:
    """Sets is_hog and note in place. A hog runs, or was preempted and comes back before the others; beside those of its
    kind it holds at least FACTOR times the median of the others and a part of the cache that matters, in blocks, or in
    tokens until the blocks of all are known; or it has at least FACTOR times the others' most tokens still to come. One
    that only waits holds nobody up, whatever it will take; among fewer than three requests nobody is one."""
    if len(items) <= MIN_OTHERS:
        return
    begun = [item for item in items if item.state in BEGUN]
    in_blocks = total_blocks is not None and all(item.blocks is not None for item in begun)
    held = sorted(_held(item, in_blocks) for item in begun)
    left = sorted(map(tokens_left, begun if len(begun) > 1 else items))
    for item in begun:
        mine = _held(item, in_blocks)
        least = MIN_SHARE * (total_blocks or 0) if in_blocks else MIN_TOKENS
        by_held = len(begun) > 1 and mine >= least and item.state == "running" and _is_too_much(mine, held)
        by_rest = _has_too_much_left(item, left)
        if by_held or by_rest:
            item.is_hog = True
            item.note = _note(item, total_blocks, by_rest)


def _held(item: RequestView, in_blocks: bool) -> int:
    return (item.blocks or 0) if in_blocks else item.prompt_tokens + item.output_tokens


def tokens_left(item: RequestView) -> int:
    return max(0, item.max_tokens - item.output_tokens) if item.max_tokens is not None else 0


def _is_too_much(mine: int, held: Sequence[int]) -> bool:
    """`held`: by all, sorted. Of those that hold much, the median of the others lies in the lower part."""
    typical = median(held[:-1])
    return typical > 0 and mine >= FACTOR * typical


def _has_too_much_left(item: RequestView, left: Sequence[int]) -> bool:
    """`left`: of all, sorted; who has the most compares with the second."""
    mine = tokens_left(item)
    return mine >= MIN_TOKENS and mine == left[-1] and mine >= FACTOR * max(1, left[-2])


def _note(item: RequestView, total_blocks: int | None, by_rest: bool) -> str:
    """What makes it one: the share it holds where that is worth a word, what is still to come."""
    limit = f" of {item.max_tokens:,}" if item.max_tokens is not None else ""
    parts = [f"{item.output_tokens:,}{limit} tokens out"]
    if item.blocks is not None and total_blocks and (share := item.blocks / total_blocks) >= MIN_SHARE:
        parts.append(f"holds {share:.0%} of the KV blocks")
    elif by_rest:
        parts.append("by far the most still to come")
    return ", ".join(parts)
