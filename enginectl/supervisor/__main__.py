"""`python -m enginectl.supervisor`: takes the lock of one engine, serves its control socket, keeps its engine.

Exit status 0 when the engine ended as somebody asked, 1 when it failed or was given up, and the error's own code when
the supervisor could not begin."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import zmq

from engine.time_slice import shorten_time_slice
from enginectl.claim import Claim
from enginectl.dirs import RUNTIME_SETTING
from enginectl.envelope import error_info
from enginectl.errors import BadRuntimeDir, Conflict, CtlError, UsageError
from enginectl.identity import identify, is_alive, send_signal, session_members
from enginectl.launch import Launched
from enginectl.record import EngineLock, read_record
from enginectl.rundir import (
    EnginePaths,
    check_readable,
    load_settings,
    make_runtime_dir,
    make_state_dir,
    remove_runtime_dir,
    runtime_dir_of,
    sweep_sockets,
)
from enginectl.settings import EngineSettings, check_settings
from enginectl.supervisor.daemon import Daemon
from enginectl.supervisor.keeper import keep
from enginectl.supervisor.logs import LOG_FLAGS
from enginectl.supervisor.repair import Held
from enginectl.supervisor.signals import install_signals
from enginectl.supervisor.usernames import USERS

LOST_TERM_S = 3.0
LOST_KILL_S = 5.0


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m enginectl.supervisor", description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--foreground", action="store_true", help="stay in this session, log to stderr too")
    parser.add_argument("--ready-fd", type=int, metavar="FD", help="one JSON line once the control socket is served")
    return parser.parse_args(argv)


def tell(fd: int | None, message: Launched) -> None:
    """To whoever launched us; one that went away is not an error."""
    if fd is None:
        return
    try:
        os.write(fd, msgspec.json.encode(message) + b"\n")
        os.close(fd)
    except OSError:
        pass


def read_settings(name: str) -> EngineSettings:
    settings = load_settings(name)
    if settings is None:
        check_readable(name)
        raise UsageError(
            f"engine {name!r} has no settings that can be read", try_=[f"enginectl start {name} --model M"]
        )
    return check_settings(settings)


def check_log(path: Path) -> None:
    """A log that cannot be written is said at the start; lost later, it costs lines only."""
    try:
        os.close(os.open(path, LOG_FLAGS, 0o600))
    except OSError as error:
        raise BadRuntimeDir(f"cannot write log {path}", cause=error.strerror or str(error)) from None


def end_lost_engine(paths: EnginePaths) -> int:
    """An engine whose supervisor was killed may live for its orphan grace, and would connect to our sockets. It is
    provably ours: the record's pid, start time and boot id, under the lock. Returns its pid, 0 when there is none."""
    record = read_record(paths.record)
    who = record.engine if record is not None else None
    if who is None or not is_alive(who):
        return 0
    members = [found for pid in session_members(who.pid) if (found := identify(pid)) is not None]
    for number, patience_s in ((signal.SIGTERM, LOST_TERM_S), (signal.SIGKILL, LOST_KILL_S)):
        for member in members:
            send_signal(member, number)
        end = time.monotonic() + patience_s
        while any(is_alive(member) for member in members) and time.monotonic() < end:
            time.sleep(0.05)
    if is_alive(who):
        raise Conflict(
            f"an earlier engine of {paths.name!r} is still alive (pid {who.pid})", cause="KILL did not end it"
        )
    return who.pid


def make_daemon(
    settings: EngineSettings, paths: EnginePaths, base: Path, held: Held, arguments: argparse.Namespace
) -> Daemon:
    """With a short time slice, which zmq's threads, begun in here, inherit: who waits for a busy engine's supervisor
    waits for them too. Whoever is started later has the usual one: an engine shall not cut in on others."""
    is_short = os.getpriority(os.PRIO_PROCESS, 0) >= 0 and shorten_time_slice()
    daemon = Daemon(settings, paths, base, held, foreground=arguments.foreground)
    if is_short:
        shorten_time_slice(is_inherited=False)
    return daemon


def serve(settings: EngineSettings, paths: EnginePaths, held: Held, arguments: argparse.Namespace) -> int:
    """With the lock and the claim held. Blocks until the engine has ended for good."""
    lost = end_lost_engine(paths)
    base = make_runtime_dir(runtime_dir_of(settings.name), paths.state)
    for log in (paths.engine_log, paths.supervisor_log):
        check_log(log)
    swept = sweep_sockets(base)
    daemon = make_daemon(settings, paths, base, held, arguments)
    if lost:
        daemon.events.add("lost", f"engine pid {lost} of an earlier supervisor ended")
    if swept:
        daemon.events.add("sweep", f"{swept} sockets of an earlier supervisor removed")
    try:
        install_signals(daemon)
        daemon.server.bind()
    except (zmq.ZMQError, OSError) as error:
        raise BadRuntimeDir(
            f"cannot bind sockets in {base}", cause=str(error), try_=[f"set {RUNTIME_SETTING} to another directory"]
        ) from None
    daemon.write_record()
    tell(arguments.ready_fd, Launched(pid=os.getpid(), control=str(base / "control.sock")))
    USERS.of(os.getuid())
    daemon.tick()
    daemon.fast_tick()
    daemon.gpus.start()
    daemon.loop.spawn(keep(daemon))
    gc.freeze()
    daemon.loop.run()
    daemon.close()
    remove_runtime_dir(base)
    return 0 if daemon.phase == "exited" else 1


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    if arguments.ready_fd is not None:
        os.set_inheritable(arguments.ready_fd, False)
    if not arguments.foreground and os.getsid(0) != os.getpid() and os.getpgrp() != os.getpid():
        os.setsid()
    os.umask(0o077)
    try:
        paths = make_state_dir(arguments.name)
        held = EngineLock(paths.lock), Claim(paths.state)
        for one in held:
            one.take()
        return serve(read_settings(arguments.name), paths, held, arguments)
    except CtlError as error:
        print(f"error[{error.id}]: {error.message}\n  cause: {error.cause}", file=sys.stderr)
        tell(arguments.ready_fd, Launched(pid=os.getpid(), error=error_info(error)))
        return int(error.exit)


if __name__ == "__main__":
    sys.exit(main())
