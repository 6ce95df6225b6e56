"""`watch`: a view now and at each change, until the supervisor is about to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import WatchArgs
from enginectl.supervisor.view import engine_view

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


MIN_INTERVAL_S = 0.05


async def handle(daemon: Daemon, session: Session, args: WatchArgs) -> None:
    while session.is_open:
        change = daemon.next_change
        session.item(engine_view(daemon))
        if daemon.is_over:
            session.end(engine_view(daemon))
            return
        await daemon.loop.first(change, daemon.over, timeout_s=max(MIN_INTERVAL_S, args.interval_s))
