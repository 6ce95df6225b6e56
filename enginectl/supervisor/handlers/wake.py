"""`wake`: memory is taken again, the scheduler runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import WakeArgs
from enginectl.supervisor.gates import gate

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: WakeArgs) -> None:
    await gate(daemon, session, "wake", "wake_up", timeout_s=args.timeout_s)
