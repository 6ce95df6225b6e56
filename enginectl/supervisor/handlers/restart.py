"""`restart`: stop the engine, start it with what settings.json says now, views until it is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import RestartArgs
from enginectl.errors import Deadline, WrongState
from enginectl.rundir import load_settings
from enginectl.supervisor.ending import begin_stop
from enginectl.supervisor.view import engine_view

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: RestartArgs) -> None:
    """Who asks while another restart goes on gets the result of that one; it is too late to ask that it hold."""
    target = _target(daemon)
    if target is not None and args.hold and not daemon.traffic.hold.is_holding:
        tries = [f"enginectl wait {daemon.settings.name} --for ready"]
        raise WrongState("a restart that holds no clients is under way already", try_=tries)
    if target is None:
        target = daemon.restarts + 1
        if args.hold:
            hold_everybody(daemon, args)
        begin_stop(daemon, max(0.0, args.grace_s), daemon.settings.term_s, by="restart", keeps_supervisor=True)
    end = daemon.loop.sleep(args.timeout_s)
    while not (daemon.restarts >= target and daemon.health is not None):
        change = daemon.next_change
        session.item(engine_view(daemon))
        if daemon.is_over or (daemon.restarts >= target and daemon.phase in ("failed", "exited")):
            raise daemon.start_failed()
        if end.done:
            raise Deadline(f"engine {daemon.settings.name!r} was not ready again in {args.timeout_s:g} s")
        await daemon.loop.first(change, end, daemon.over, timeout_s=1.0)
    session.end(engine_view(daemon))


def _target(daemon: Daemon) -> int | None:
    """The number of the restart that goes on already, with the same settings; None when there is none. Raises
    WrongState for an engine that ends."""
    name, stop = daemon.settings.name, daemon.stopping
    if stop is not None:
        if not stop.keeps_supervisor:
            tries = [f"enginectl wait {name} --for stopped && enginectl start {name}"]
            raise WrongState(f"engine {name!r} is stopping", try_=tries)
        return daemon.restarts + 1
    is_asked_for = daemon.is_restarting and daemon.phase == "starting"
    return daemon.restarts if is_asked_for and load_settings(name) in (None, daemon.settings) else None


def hold_everybody(daemon: Daemon, args: RestartArgs) -> None:
    """From this moment clients wait. What the engine still says in ending would end their requests, so it is not
    heard."""
    limit_s = daemon.settings.hold_limit_s if args.hold_limit_s is None else args.hold_limit_s
    daemon.relay.engine_gone()
    daemon.relay.is_deaf = True
    daemon.traffic.begin_hold(limit_s, args.hold_sampled or daemon.settings.hold_sampled)
