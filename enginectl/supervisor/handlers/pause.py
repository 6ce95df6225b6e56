"""`pause`: the scheduler stops; answered once what `mode` asks for is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import PauseArgs
from enginectl.supervisor.gates import gate

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: PauseArgs) -> None:
    await gate(daemon, session, "pause", "pause_scheduler", args.mode, timeout_s=args.timeout_s)
