"""`utilities`: what may be called, as the engine described itself when it became ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.reports import EngineDescription
from enginectl.control_verbs import UtilitiesArgs, UtilityTable
from enginectl.errors import Deadline
from enginectl.supervisor.late import late

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session

ASK_S = 10.0


async def handle(daemon: Daemon, session: Session, args: UtilitiesArgs) -> None:
    daemon.check_serving("call")
    if daemon.description is None and daemon.kind.has_own_utilities:  # ready a moment ago
        daemon.description = await _describe(daemon, max(0.0, min(args.timeout_s, ASK_S)))
    session.reply(UtilityTable(items=daemon.description.utilities if daemon.description else None))


async def _describe(daemon: Daemon, timeout_s: float) -> EngineDescription:
    try:
        return await daemon.calls.get("describe", EngineDescription, timeout_s=timeout_s)
    except Deadline as error:
        raise late(daemon, error.message) from None
