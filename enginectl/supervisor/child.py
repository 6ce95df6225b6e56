"""The engine process: spawned, listened to, signalled, buried.

Settings come in; status lines, log bytes and one exit status come out. Owns the process, its process group, three
pipes (status, log, death) and a pidfd. Must be used from the main thread of the supervisor: the kernel ties a
parent-death signal to the thread that spawned the child."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from enginectl.identity import ProcessId, identify, read_stat, send_signal, session_members
from enginectl.models import CACHE_SETTING, cache_root
from enginectl.settings import EngineSettings, Scalar
from enginectl.supervisor import vllm
from enginectl.supervisor.loop import Future, Loop

READ_BYTES = 65536
MAX_STATUS_LINE = 64 * 1024
_FLAGS = {"shutdown_timeout_s": "--shutdown-timeout", "orphan_grace_s": "--orphan-grace"}


class StatusLine(Struct, kw_only=True):
    """One line of the status pipe."""

    phase: str
    event: str
    detail: str = ""
    error: str = ""
    t: float = 0.0


@dataclass(frozen=True, slots=True)
class ExitStatus:
    code: int | None
    signal: str | None

    def __str__(self) -> str:
        return f"signal {self.signal}" if self.signal else f"exit {self.code}"


def engine_command(settings: EngineSettings, handshake: str, status_fd: int, death_fd: int) -> list[str]:
    """The command line of our own engine."""
    command = [settings.python, "-m", "engine", "--handshake", handshake, "--engine-index", "0", "--local-frontend",
               "--status-fd", str(status_fd), "--death-fd", str(death_fd)]  # fmt: skip
    for key, value in settings.config.items():
        command += _argument(key, value)
    return [*command, *settings.engine_args]


def _argument(key: str, value: Scalar) -> list[str]:
    if key == "enable_prefix_caching":
        return [] if value else ["--no-prefix-caching"]
    if key == "allow_unsafe_calls":
        return ["--allow-unsafe-calls"] if value else []
    if value is None:
        return []
    return [_FLAGS.get(key, "--" + key.replace("_", "-")), str(value)]


def engine_environment(settings: EngineSettings) -> dict[str, str]:
    """With the cache that models were found in: the engine keeps its compiled code there, and need not guess."""
    places = {CACHE_SETTING: str(cache_root())}
    environment = {**places, **os.environ, **settings.env, "PYTHONUNBUFFERED": "1"}
    if settings.gpus is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, settings.gpus))
    return environment


class Child:
    """One engine process, from spawn to the last member of its group."""

    def __init__(self, loop: Loop, on_status: Callable[[StatusLine], None], on_log: Callable[[bytes], None]) -> None:
        self.exited: Future[ExitStatus] = Future()
        self.id: ProcessId | None = None
        self._loop = loop
        self._on_status = on_status
        self._on_log = on_log
        self._process: subprocess.Popen[bytes] | None = None
        self._status_fd = self._log_fd = self._death_fd = self._pidfd = -1
        self._partial = b""

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def spawn(self, settings: EngineSettings, handshake: str) -> None:
        """Raises OSError when the interpreter cannot be run."""
        if settings.engine == "vllm":
            command = vllm.engine_command(settings, handshake)
            self.run(lambda _, death_fd: vllm.guarded(command, death_fd, settings.term_s), vllm.environment(settings))
        else:
            self.run(lambda *fds: engine_command(settings, handshake, *fds), engine_environment(settings))

    def run(self, command_with: Callable[[int, int], list[str]], environment: dict[str, str]) -> None:
        """`command_with`: from the descriptors of the status and the death pipe. Raises OSError."""
        status_read, status_write = os.pipe()
        log_read, log_write = os.pipe()
        death_read, death_write = os.pipe()
        command = command_with(status_write, death_read)
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log_write, stderr=log_write, cwd="/",
                pass_fds=(status_write, death_read), start_new_session=True, env=environment,
            )  # fmt: skip
        except OSError:
            for fd in (status_read, log_read, death_write):
                os.close(fd)
            raise
        finally:
            for fd in (status_write, log_write, death_read):
                os.close(fd)
        self._status_fd, self._log_fd, self._death_fd = status_read, log_read, death_write
        self.id = identify(self._process.pid)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._listen()

    def _listen(self) -> None:
        for fd in (self._status_fd, self._log_fd):
            fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
        self._loop.watch(self._status_fd, self._read_status)
        self._loop.watch(self._log_fd, self._read_log)
        self._loop.watch(self._pidfd, self._on_exit)

    # ------------------------------------------------------------ what it says

    def _read_status(self) -> None:
        data = self._read(self._status_fd)
        if not data:
            if data is not None:
                self._status_fd = self._drop(self._status_fd)
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._partial = self._partial[-MAX_STATUS_LINE:]
        for line in lines:
            try:
                self._on_status(msgspec.json.decode(line, type=StatusLine))
            except (msgspec.MsgspecError, RecursionError):
                continue  # foreign output on an inherited descriptor

    def _read_log(self) -> None:
        data = self._read(self._log_fd)
        if data:
            self._on_log(data)
        elif data is not None:
            self._log_fd = self._drop(self._log_fd)

    def _read(self, fd: int) -> bytes | None:
        """None: nothing now. Empty: end of file."""
        if fd < 0:
            return None
        try:
            return os.read(fd, READ_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _drop(self, fd: int) -> int:
        if fd >= 0:
            self._loop.unwatch(fd)
            os.close(fd)
        return -1

    # ------------------------------------------------------------ how it ends

    def _on_exit(self) -> None:
        if self._process is None:
            return
        code = self._process.poll()
        if code is None:
            return
        self._pidfd = self._drop(self._pidfd)
        for _ in range(256):  # what it wrote last is still in the pipes
            if not self._read_more():
                break
        self.exited.set_result(ExitStatus(None, signal_name(-code)) if code < 0 else ExitStatus(code, None))

    def _read_more(self) -> bool:
        before = (self._status_fd, self._log_fd)
        self._read_status()
        data = self._read(self._log_fd)
        if data:
            self._on_log(data)
        return bool(data) or before != (self._status_fd, self._log_fd)

    def send(self, number: signal.Signals) -> None:
        """To the engine process alone."""
        if self.id is not None and not self.exited.done:
            send_signal(self.id, number)

    def other_exit(self, pid: int) -> Future[None]:
        """Done when that process of the group has ended."""
        ended: Future[None] = Future()
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            ended.set_result(None)
            return ended

        def seen() -> None:
            self._loop.unwatch(fd)
            os.close(fd)
            ended.set_result(None)

        self._loop.watch(fd, seen)
        return ended

    def send_core(self, number: signal.Signals) -> None:
        """To the process of a guarded group that computes."""
        who = identify(vllm.core_pid([pid for pid in self.members() if pid != self.pid]))
        if who is not None:
            send_signal(who, number)

    def signal_group(self, number: signal.Signals) -> None:
        """To every process of its session or group, one by one, by pid."""
        self.send(number)
        for pid in self.members():
            who = identify(pid)
            stat = read_stat(pid)
            if who is not None and stat is not None and self.pid in (stat.session, stat.pgrp) and pid != self.pid:
                send_signal(who, number)

    def members(self) -> list[int]:
        """Live processes of its session or process group, itself included."""
        return session_members(self.pid) if self.pid else []

    def close(self) -> None:
        """Pipes; closing the death pipe tells a living engine to end."""
        self._status_fd = self._drop(self._status_fd)
        self._log_fd = self._drop(self._log_fd)
        self._pidfd = self._drop(self._pidfd)
        if self._death_fd >= 0:
            os.close(self._death_fd)
            self._death_fd = -1


async def bury(loop: Loop, child: Child, term_s: float, kill_s: float = 5.0) -> list[int]:
    """After the engine process ended: TERM, then KILL to what it left behind. Returns who is still alive."""
    if not child.members():
        return []
    for number, patience_s in ((signal.SIGTERM, term_s), (signal.SIGKILL, kill_s)):
        child.signal_group(number)
        end = time.monotonic() + patience_s
        while child.members() and time.monotonic() < end:
            await loop.sleep(0.05)
        if not child.members():
            return []
    return child.members()


def reap_orphans(own: Collection[int]) -> None:
    """For a supervisor that is process 1 of a container: zombies that were handed to it. `own`: processes whose end
    somebody here waits for, and would take for a clean one if it found nothing left of them."""
    while True:
        try:
            seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if seen is None or seen.si_pid in own:
                return
            os.waitpid(seen.si_pid, os.WNOHANG)
        except ChildProcessError:
            return


def signal_name(number: int) -> str:
    """`9 KILL`."""
    try:
        return f"{number} {signal.Signals(number).name.removeprefix('SIG')}"
    except ValueError:
        return str(number)
