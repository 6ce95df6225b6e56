"""`cordon`: new requests are refused from here on; what runs goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import CordonArgs
from enginectl.supervisor.view import engine_view

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: CordonArgs) -> None:
    daemon.check_serving("cordon")
    daemon.is_cordoned = True
    daemon.changed()
    session.reply(engine_view(daemon))
