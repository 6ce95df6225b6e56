"""`metrics`: the figures as Prometheus text; begins and ends serving them over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import Metrics, MetricsArgs
from enginectl.supervisor.publishing import listen, metrics_of

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: MetricsArgs) -> None:
    if args.listen is not None:
        listen(daemon, args.listen, allow_remote=args.allow_remote)
    session.reply(Metrics(text=metrics_of(daemon), listening=daemon.exporter.url if daemon.exporter else ""))
