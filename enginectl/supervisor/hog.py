"""Which request holds far more of the engine than its fair share, so that others wait for it or will: a pure function
over the request table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from enginectl.control import RequestView

FACTOR = 3.0
BEGUN = ("running", "preempted")
MIN_OTHERS = 2
MIN_TOKENS_LEFT = 256
MIN_SHARE = 0.02
"""A smaller part of the cache is nobody's trouble, however little the others hold."""


def mark_hogs(items: Sequence[RequestView], total_blocks: int | None) -> None:
    """Sets is_hog and note in place. A hog runs, or was preempted and comes back before the others; beside those of its
    kind it holds at least FACTOR times the median of the others in blocks and a part of the cache that matters, or has
    at least FACTOR times the others' most tokens still to come. One that only waits holds nobody up, whatever it will
    take; among fewer than three requests nobody is one."""
    if len(items) <= MIN_OTHERS:
        return
    begun = [item for item in items if item.state in BEGUN]
    held = sorted(map(_held, begun))
    left = sorted(map(tokens_left, begun if len(begun) > 1 else items))
    for item in begun:
        by_blocks = len(begun) > 1 and _holds_too_much(item, held) and _share(item, total_blocks) >= MIN_SHARE
        by_rest = _has_too_much_left(item, left)
        if by_blocks or by_rest:
            item.is_hog = True
            item.note = _note(item, total_blocks, by_rest)


def _held(item: RequestView) -> int:
    return item.blocks if item.blocks is not None else item.prompt_tokens + item.output_tokens


def tokens_left(item: RequestView) -> int:
    return max(0, item.max_tokens - item.output_tokens) if item.max_tokens is not None else 0


def _holds_too_much(item: RequestView, held: Sequence[int]) -> bool:
    """`held`: by all, sorted. Of those that hold much, the median of the others lies in the lower part."""
    typical = median(held[:-1])
    return item.state == "running" and typical > 0 and _held(item) >= FACTOR * typical


def _has_too_much_left(item: RequestView, left: Sequence[int]) -> bool:
    """`left`: of all, sorted; who has the most compares with the second."""
    mine = tokens_left(item)
    return mine >= MIN_TOKENS_LEFT and mine == left[-1] and mine >= FACTOR * max(1, left[-2])


def _share(item: RequestView, total_blocks: int | None) -> float:
    """Of the cache; 1 where blocks are not known, so that tokens alone decide."""
    return item.blocks / total_blocks if item.blocks is not None and total_blocks else 1.0


def _note(item: RequestView, total_blocks: int | None, by_rest: bool) -> str:
    """What makes it one: the share it holds where that is worth a word, what is still to come."""
    limit = f" of {item.max_tokens:,}" if item.max_tokens is not None else ""
    parts = [f"{item.output_tokens:,}{limit} tokens out"]
    if (share := _share(item, total_blocks)) >= MIN_SHARE and item.blocks is not None and total_blocks:
        parts.append(f"holds {share:.0%} of the KV blocks")
    elif by_rest:
        parts.append("by far the most still to come")
    return ", ".join(parts)
