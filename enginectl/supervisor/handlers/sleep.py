"""`sleep`: requests end or finish, then memory is given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import SleepArgs
from enginectl.supervisor.gates import gate

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: SleepArgs) -> None:
    await gate(daemon, session, "sleep", "sleep", args.level, args.mode, timeout_s=args.timeout_s)
