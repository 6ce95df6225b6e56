"""`events`: what happened lately."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import EventList, EventsArgs

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: EventsArgs) -> None:
    session.reply(EventList(items=daemon.events.last(args.limit, args.since_seq)))
