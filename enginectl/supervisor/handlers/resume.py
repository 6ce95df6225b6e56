"""`resume`: the scheduler runs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import ResumeArgs
from enginectl.supervisor.gates import gate

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: ResumeArgs) -> None:
    await gate(daemon, session, "resume", "resume_scheduler", timeout_s=args.timeout_s)
