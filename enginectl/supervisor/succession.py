"""What the end of an engine means for those who wait on it: a successor will come, or nobody will.

Asked by the keeper at each ready and each end. With a successor, clients are held or told; without one, an external
frontend hears ENGINE_CORE_DEAD, which is its only way to learn it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from enginectl.supervisor.policy import Restart, decide

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon


def will_be_replaced(daemon: Daemon, lived_s: float) -> bool:
    """Whether the keeper will start another engine after this end."""
    if daemon.stopping is not None:
        return daemon.stopping.keeps_supervisor
    if daemon.expected and daemon.settings.restart != "always":
        return False
    if not daemon.was_ever_ready:
        return False
    return isinstance(decide(daemon.settings.restart, daemon.restart_times, time.monotonic(), lived_s), Restart)


def will_be_held(daemon: Daemon) -> bool:
    """Whether clients of an engine that is about to end unasked will wait for its successor."""
    if not daemon.settings.hold or daemon.expected or daemon.stopping is not None:
        return False
    return will_be_replaced(daemon, daemon.tracker.elapsed_s)


def succeed(daemon: Daemon) -> None:
    """An engine serves: held requests go to it, a frontend that waits hears READY."""
    daemon.traffic.engine_up()
    if daemon.bridge is not None:
        daemon.bridge.engine_up()


def bequeath(daemon: Daemon) -> None:
    """An engine has ended, and everything it sent has been passed on."""
    ended = daemon.last_exit
    text = daemon.died().message
    if not will_be_replaced(daemon, daemon.tracker.elapsed_s):
        daemon.traffic.fail_held(text)
        daemon.traffic.engine_ended(text)
        return renounce(daemon)
    if daemon.settings.hold and ended is not None and not ended.requested and daemon.was_ever_ready:
        daemon.traffic.begin_hold(daemon.settings.hold_limit_s, daemon.settings.hold_sampled)
    return daemon.traffic.engine_ended(text)


def renounce(daemon: Daemon) -> None:
    """No engine will come."""
    daemon.traffic.fail_held("no engine will come")
    if daemon.bridge is not None:
        daemon.bridge.engine_over()
