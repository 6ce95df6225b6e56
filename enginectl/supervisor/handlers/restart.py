"""`restart`: stop the engine, start it with what settings.json says now, views until it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control import RestartArgs
from enginectl.errors import Deadline
from enginectl.supervisor.ending import begin_stop
from enginectl.supervisor.view import engine_view

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: RestartArgs) -> None:
    run = daemon.engine_exit if not daemon.is_without_engine else None
    began_with = daemon.restarts
    if args.hold:
        hold_everybody(daemon, args)
    stop = begin_stop(daemon, max(0.0, args.grace_s), daemon.settings.term_s, by="restart", keeps_supervisor=True)
    end = daemon.loop.sleep(args.timeout_s)
    await daemon.loop.first(stop.done, end)
    while not (daemon.restarts > began_with and daemon.health is not None):
        change = daemon.next_change
        session.item(engine_view(daemon))
        if daemon.phase in ("failed", "exited") and daemon.engine_exit is not run and daemon.engine_exit.done:
            raise daemon.start_failed()
        if end.done:
            raise Deadline(f"engine {daemon.settings.name!r} was not ready again in {args.timeout_s:g} s")
        await daemon.loop.first(change, end, daemon.over, timeout_s=1.0)
    session.end(engine_view(daemon))


def hold_everybody(daemon: Daemon, args: RestartArgs) -> None:
    """From this moment clients wait. What the engine still says in ending would end their requests, so it is not
    heard."""
    limit_s = daemon.settings.hold_limit_s if args.hold_limit_s is None else args.hold_limit_s
    daemon.relay.engine_gone()
    daemon.relay.is_deaf = True
    daemon.traffic.begin_hold(limit_s, args.hold_sampled or daemon.settings.hold_sampled)
