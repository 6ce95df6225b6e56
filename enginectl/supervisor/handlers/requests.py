"""`requests`: what is in flight, as the engine sees it, with what only the supervisor knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.reports import RequestInfo
from enginectl.control import RequestView
from enginectl.control_verbs import RequestList, RequestsArgs
from enginectl.supervisor.hog import mark_hogs
from enginectl.supervisor.view import request_views

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: RequestsArgs) -> None:
    if daemon.traffic.hold.is_holding:
        items = held(daemon)
    elif daemon.stopping is not None and not daemon.is_without_engine:
        items = request_views(daemon)  # the engine answers no more; the relay still can
    else:
        daemon.check_serving("requests")
        items = await _serving(daemon)
    session.reply(listed(items, daemon.ready.num_gpu_blocks if daemon.ready else None, args.limit))


async def _serving(daemon: Daemon) -> list[RequestView]:
    table = await daemon.tables.get()
    mine = {view.id: view for view in request_views(daemon)}
    known = [merge(row, mine.pop(row.id, None)) for row in (table.items if table else ()) if row.id in mine]
    return known + list(mine.values())  # and what was added since the table was made


def listed(items: list[RequestView], total_blocks: int | None, limit: int) -> RequestList:
    """Hogs first, then the oldest. Marked before the limit: the hog is often the youngest."""
    mark_hogs(items, total_blocks)
    items.sort(key=lambda row: (not row.is_hog, -row.age_s))
    return RequestList(items=items[: max(0, limit)], total=len(items))


def held(daemon: Daemon) -> list[RequestView]:
    """Between two engines: what the relay keeps for its clients, with what it knows of each."""
    items = request_views(daemon)
    for view in items:
        view.state, view.waits_for = "held", "the engine is replaced; its client waits"
    return items


def merge(row: RequestInfo, mine: RequestView | None) -> RequestView:
    """The engine's row, with the times that only the relay sees."""
    cached = row.cached_tokens / row.prompt_tokens if row.prompt_tokens and row.computed_tokens else None
    state = row.state if row.state in ("running", "preempted") else "waiting"
    view = RequestView(
        id=row.id, external_id=row.external_id, state=state, age_s=row.age_s,  # type: ignore[arg-type]
        prompt_tokens=row.prompt_tokens, output_tokens=row.output_tokens, max_tokens=row.max_tokens,
        blocks=row.blocks, blocks_needed=row.blocks_needed, cached_ratio=cached, client=row.client,
        priority=row.priority, preemptions=row.preemptions, waits_for=row.waits_for, limit=row.limit,
    )  # fmt: skip
    if mine is not None:
        view.external_id = row.external_id or mine.external_id
        view.ttft_s, view.tpot_ms = mine.ttft_s, mine.tpot_ms
        view.output_tokens = max(row.output_tokens, mine.output_tokens)  # the relay counts them as they pass
    return view
