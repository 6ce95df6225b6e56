"""Which request holds far more of the engine than its fair share: a pure function over the request table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from enginectl.control import RequestView

FACTOR = 3.0
MIN_OTHERS = 2
MIN_TOKENS_LEFT = 256


def mark_hogs(items: Sequence[RequestView], total_blocks: int | None) -> None:
    """Sets is_hog and note in place. A hog holds at least FACTOR times the median of the others in blocks, or has at
    least FACTOR times the others' most tokens still to come; among fewer than three requests nobody is one."""
    if len(items) <= MIN_OTHERS:
        return
    for item in items:
        others = [other for other in items if other is not item]
        by_blocks = _holds_too_much(item, others)
        by_rest = _has_too_much_left(item, others)
        if by_blocks or by_rest:
            item.is_hog = True
            item.note = _note(item, total_blocks, by_rest)


def _held(item: RequestView) -> int:
    return item.blocks if item.blocks is not None else item.prompt_tokens + item.output_tokens


def tokens_left(item: RequestView) -> int:
    return max(0, item.max_tokens - item.output_tokens) if item.max_tokens is not None else 0


def _holds_too_much(item: RequestView, others: Sequence[RequestView]) -> bool:
    typical = median(_held(other) for other in others)
    return item.state == "running" and typical > 0 and _held(item) >= FACTOR * typical


def _has_too_much_left(item: RequestView, others: Sequence[RequestView]) -> bool:
    left = tokens_left(item)
    return left >= MIN_TOKENS_LEFT and left >= FACTOR * max(1, max(tokens_left(other) for other in others))


def _note(item: RequestView, total_blocks: int | None, by_rest: bool) -> str:
    limit = f" of {item.max_tokens:,}" if item.max_tokens is not None else ""
    parts = [f"{item.output_tokens:,}{limit} tokens out"]
    if item.blocks is not None and total_blocks:
        parts.append(f"holds {item.blocks / total_blocks:.0%} of the KV blocks")
    elif by_rest:
        parts.append("most tokens still to come")
    return ", ".join(parts)
