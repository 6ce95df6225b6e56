"""`explain`: why a request waits or how it runs, from the engine's own table and what the relay has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control import RequestView
from enginectl.control_explain import ExplainArgs, Explanation, ExplanationList
from enginectl.errors import NoSuchRequest
from enginectl.supervisor.explain import Scene, explain
from enginectl.supervisor.handlers.requests import held, merge
from enginectl.supervisor.view import request_views, state_of

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


MAX_ITEMS = 20


async def handle(daemon: Daemon, session: Session, args: ExplainArgs) -> None:
    is_holding = daemon.traffic.hold.is_holding
    if not is_holding:
        daemon.check_serving("explain")
    found = daemon.inflight.find(args.id)
    if not found.flights:
        raise _unknown(daemon.settings.name, args.id, found.finished, found.ambiguous)
    if is_holding:
        ids = [flight.id for flight in found.flights[:MAX_ITEMS]]
        items = [Explanation(request=view, because=view.waits_for) for view in held(daemon) if view.id in ids]
        return session.reply(ExplanationList(items=items))
    if daemon.health is not None:
        await daemon.health.ask()
    scene = await _scene(daemon)
    by_id = {item.id: item for item in scene.items}
    wanted = [by_id[flight.id] for flight in found.flights[:MAX_ITEMS] if flight.id in by_id]
    if not wanted:
        raise _unknown(daemon.settings.name, args.id, "just now", [])
    return session.reply(ExplanationList(items=[explain(item, scene) for item in wanted]))


def _unknown(name: str, asked: str, finished: str, ambiguous: list[str]) -> NoSuchRequest:
    if ambiguous:
        return NoSuchRequest(f"{asked!r} could be several requests", cause=", ".join(ambiguous))
    if finished:
        return NoSuchRequest(f"request {asked!r} is not in flight any more", cause=f"it ended: {finished}")
    return NoSuchRequest(f"no request {asked!r} in flight", try_=[f"enginectl requests {name}"])


async def _scene(daemon: Daemon) -> Scene:
    table = await daemon.tables.get()
    mine = {view.id: view for view in request_views(daemon)}
    items: list[RequestView] = []
    if table is not None:
        items = [merge(row, mine.pop(row.id, None)) for row in table.items if row.id in mine]
    items += mine.values()
    items.sort(key=lambda item: item.state != "running")
    engine = daemon.health.engine if daemon.health else None
    ready, last, drain = daemon.ready, daemon.book.last, daemon.drain
    state, reason = state_of(daemon)
    return Scene(
        items=items, knows_order=table is not None,
        free_blocks=engine.free_blocks if engine and engine.num_gpu_blocks else last.free_blocks,
        total_blocks=ready.num_gpu_blocks if ready else None,
        kv_used_ratio=last.kv_cache_usage if daemon.book.turned_at is not None else None,
        block_size=ready.block_size if ready else 16, max_model_len=ready.max_model_len if ready else None,
        max_num_seqs=ready.max_num_seqs if ready else None, steps=list(daemon.book.step_tokens),
        decodes=list(daemon.book.decode_steps),
        step=max(last.step_counter, engine.step_counter if engine else 0),
        paused=engine.paused or "" if engine and not engine.sleeping else "",
        is_sleeping=engine is not None and engine.sleeping, stalled=reason if state == "stalled" else "",
        drain_left_s=None if drain is None else drain.args.grace_s - drain.progress.began_s_ago,
        is_cordoned=daemon.is_cordoned,
    )  # fmt: skip
