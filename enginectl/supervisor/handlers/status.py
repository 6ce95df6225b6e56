"""`status`: the engine as it is now. Never waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import StatusArgs
from enginectl.supervisor.view import engine_view

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: StatusArgs) -> None:
    session.reply(engine_view(daemon))
