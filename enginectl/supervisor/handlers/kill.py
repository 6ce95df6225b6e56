"""`kill`: KILL to the whole process group now. The supervisor ends too, unless it restarts always."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from enginectl.control_verbs import KillArgs
from enginectl.errors import Deadline

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


KILL_S = 10.0


async def handle(daemon: Daemon, session: Session, args: KillArgs) -> None:
    child = daemon.child
    if child is None or daemon.is_without_engine:
        raise daemon.died()
    daemon.expected, daemon.has_signalled, ended = "kill", True, daemon.engine_exit
    child.signal_group(signal.SIGKILL)
    if not await daemon.loop.first(ended, timeout_s=KILL_S):
        raise Deadline(f"pid {child.pid} is still alive {KILL_S:g} s after KILL")
    session.reply(ended.result())
