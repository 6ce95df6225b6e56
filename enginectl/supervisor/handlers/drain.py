"""`drain`: progress until the engine is empty. The drain goes on without its caller; `uncordon` cancels it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import DrainArgs
from enginectl.supervisor.draining import begin_drain

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: DrainArgs) -> None:
    daemon.check_serving("drain")
    drain = begin_drain(daemon, args)
    drain.listen(session.item)
    try:
        session.end(await drain.done)
    finally:
        drain.forget(session.item)
