"""`stacks`: the stack of every thread of the engine, also when its loop does not turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import Stacks, StacksArgs
from enginectl.supervisor.stacks import collect_stacks

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: StacksArgs) -> None:
    session.reply(Stacks(text=await collect_stacks(daemon, args.timeout_s)))
