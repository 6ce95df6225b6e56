"""`uncordon`: new requests are admitted again; a drain that can still be taken back is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import CordonArgs
from enginectl.supervisor.draining import cancel_drain
from enginectl.supervisor.view import engine_view

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: CordonArgs) -> None:
    daemon.check_serving("uncordon")
    await cancel_drain(daemon)
    daemon.is_cordoned = False
    daemon.changed()
    session.reply(engine_view(daemon))
