"""`stop`: each stage as it comes; ends when the whole process group is gone. It goes on without its caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import StopArgs, StopStage
from enginectl.supervisor.ending import begin_stop

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: StopArgs) -> None:
    stop = begin_stop(daemon, max(0.0, args.grace_s), max(0.0, args.term_s), by="stop")
    stop.listen(session.item)
    await stop.done
    session.end(stop.stages[-1] if stop.stages else StopStage(stage="gone"))
