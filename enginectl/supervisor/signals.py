"""What signals ask of a supervisor: TERM and INT stop it as configured, a second INT hurries, QUIT aborts, HUP reopens
the logs, USR1 writes its own stacks to its log. They arrive as bytes on a pipe that the loop reads."""

from __future__ import annotations

import faulthandler
import os
import signal
from typing import TYPE_CHECKING

from enginectl.supervisor.ending import begin_stop

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1)


def install_signals(daemon: Daemon) -> None:
    """Main thread only."""
    read_fd, write_fd = os.pipe()
    for fd in (read_fd, write_fd):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    for number in HANDLED:
        signal.signal(number, lambda *_: None)
    daemon.loop.watch(read_fd, lambda: _read(daemon, read_fd))


def _read(daemon: Daemon, read_fd: int) -> None:
    for number in os.read(read_fd, 64):
        on_signal(daemon, number)


def on_signal(daemon: Daemon, number: int) -> None:
    name = signal.Signals(number).name.removeprefix("SIG")
    daemon.events.add("signal", f"supervisor got {name}")
    if number == signal.SIGHUP:
        daemon.log.reopen()
        daemon.engine_log.reopen()
    elif number == signal.SIGUSR1:
        _log_own_stacks(daemon)
    elif number == signal.SIGQUIT:
        begin_stop(daemon, grace_s=0.0, term_s=daemon.settings.term_s, by="signal QUIT").hurry_to("abort")
    elif number == signal.SIGINT and daemon.stopping is not None and not daemon.stopping.keeps_supervisor:
        daemon.stopping.hurry()
    else:
        grace_s = daemon.settings.stop_grace_s if daemon.settings.stop == "drain" else 0.0
        begin_stop(daemon, grace_s=grace_s, term_s=daemon.settings.term_s, by=f"signal {name}")


def _log_own_stacks(daemon: Daemon) -> None:
    try:
        with open(daemon.paths.supervisor_log, "ab") as file:
            faulthandler.dump_traceback(file, all_threads=True)
    except OSError:
        pass
