"""One start, from saved settings to ready: who launches, who attaches, what is shown meanwhile.

Enters: settings. Leaves: the ready view, or StartFailed, Conflict, Deadline. Starts of one name take turns for the
moment in which a supervisor is launched; all of them then watch the same start."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Any

from enginectl import text
from enginectl.context import look
from enginectl.control import EngineView
from enginectl.control_verbs import WatchArgs
from enginectl.errors import (
    BadRuntimeDir,
    Conflict,
    CtlError,
    Deadline,
    EngineDied,
    NotRunning,
    Stalled,
    StartFailed,
    Unreachable,
    WrongState,
)
from enginectl.identity import is_stopped
from enginectl.output import Output
from enginectl.rundir import EngineEntry, load_settings, make_state_dir, save_settings
from enginectl.settings import EngineSettings, differences
from enginectl.silence import unreachable
from enginectl.views import phase_line, running_phase_line

LAUNCH_TURN_S = 30.0
"""How long one start waits for another of the same name to have launched."""
SERVED_S = 8.0
"""How long the files and sockets of a supervisor that lives may be missing: it looks after them each second."""
LOST_WAIT_S = 20.0
"""How long an engine without a supervisor gets to end by itself before a new one starts."""
UP = frozenset({"ready", "idle", "busy", "saturated", "paused", "sleeping", "cordoned"})
ENDED = frozenset({"failed", "exited"})


@contextlib.contextmanager
def launch_turn(name: str) -> Iterator[None]:
    """Only one command at a time decides whether NAME has to be launched. Raises Deadline, BadRuntimeDir."""
    path = make_state_dir(name).state / "start.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise BadRuntimeDir(
            f"cannot open lock {path}", cause=str(error.strerror or error), try_=[f"mv {path} {path}.old"]
        ) from None
    try:
        _take(fd, name)
        yield
    finally:
        os.close(fd)


def _take(fd: int, name: str) -> None:
    end = time.monotonic() + LAUNCH_TURN_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise Deadline(
                    f"another start of {name!r} has been launching for {LAUNCH_TURN_S:.0f} s",
                    try_=[f"enginectl status {name}"],
                ) from None
            time.sleep(0.05)


def launch_or_attach(settings: EngineSettings, given: frozenset[str], *, wait_s: float, out: Output) -> bool:
    """True: launched now. False: it runs or starts already, with the same settings. `given`: the options beside the
    engine's own settings that were asked for; only those can conflict. `wait_s`: how long one that is stopping gets to
    be gone. Raises Conflict, StartFailed, WrongState, Unreachable."""
    name, end = settings.name, time.monotonic() + wait_s
    while True:
        with launch_turn(name):
            entry = EngineEntry.read(name)
            if entry.liveness == "lost":
                entry = wait_lost(name)
            if entry.liveness != "running":
                return _launch(settings, given)
        if not _is_ending(entry):
            check_same(settings, _running_settings(name), given)
            return False
        _await_gone(entry, end, out)


def _launch(settings: EngineSettings, given: frozenset[str]) -> bool:
    from enginectl.launch import launch_supervisor

    save_settings(settings)
    try:
        launch_supervisor(settings.name)
    except Conflict:
        check_same(settings, load_settings(settings.name), given)
        return False
    return True


def _is_ending(entry: EngineEntry) -> bool:
    """Whether nobody can attach to it any more. One that failed a moment ago still tells whoever waited for it. Raises
    Unreachable."""
    if entry.record is not None and entry.record.ended:
        return entry.record.state != "failed"
    view = reach(entry.name)
    return view is None or view.state == "exited" or (view.state == "stopping" and not view.returns)


def reach(name: str) -> EngineView | None:
    """Its supervisor's word; a socket that somebody removed comes back meanwhile. None: the supervisor has ended.
    Raises Unreachable."""
    end = time.monotonic() + SERVED_S
    while True:
        entry = EngineEntry.read(name)
        view = look(entry)
        if entry.liveness != "running" or view.state != "unreachable":
            return view if entry.liveness == "running" else None
        if time.monotonic() > end or is_stopped(entry.supervisor):
            raise unreachable(name, entry.supervisor, f"{entry.control_socket} is not answered")
        time.sleep(0.1)


def _running_settings(name: str) -> EngineSettings | None:
    """What it was started with. Its supervisor writes them again when somebody removed them."""
    end = time.monotonic() + SERVED_S
    while (found := load_settings(name)) is None and time.monotonic() < end:
        time.sleep(0.1)
    return found


def _await_gone(entry: EngineEntry, end: float, out: Output) -> None:
    """Until a supervisor that is about to end has ended. Raises WrongState when that is not waited for."""
    name = entry.name
    if not entry.is_over:
        if time.monotonic() < end:
            out.say(f"{name}  is stopping; it starts when that is done")
        else:
            tries = [f"enginectl wait {name} --for stopped", f"enginectl start {name}"]
            raise WrongState(f"engine {name!r} is stopping", try_=tries)
    if not entry.wait_gone(max(SERVED_S, end - time.monotonic())):
        raise unreachable(name, entry.supervisor, "it did not end")


def wait_lost(name: str) -> EngineEntry:
    end = time.monotonic() + LOST_WAIT_S
    while (entry := EngineEntry.read(name)).liveness == "lost":
        if time.monotonic() > end:
            raise Conflict(f"an engine {name!r} without a supervisor is still alive", try_=[f"enginectl kill {name}"])
        time.sleep(0.1)
    return entry


def check_same(asked: EngineSettings, running: EngineSettings | None, given: frozenset[str]) -> None:
    if running is None:
        return
    differ = [key for key in differences(asked, running) if key.startswith("config.") or key in given]
    if "model" not in given:
        differ = [key for key in differ if not _is_of_a_file(key, asked, running)]
    if not differ:
        return
    lines = [
        f"{key.removeprefix('config.')}: running {_value(running, key)}, asked {_value(asked, key)}" for key in differ
    ]
    raise Conflict(
        f"engine {asked.name!r} is running with other settings",
        cause="\n".join(lines),
        try_=[f"enginectl stop {asked.name} && enginectl start {asked.name} ...", "another name"],
    )


def _is_of_a_file(key: str, asked: EngineSettings, running: EngineSettings) -> bool:
    """A setting that the running engine has from a file of another directory, and that nobody asks for here."""
    name = key.removeprefix("config.")
    return name != key and name not in asked.config and running.typed is not None and name not in running.typed


def _value(settings: EngineSettings, key: str) -> str:
    if key.startswith("config."):
        value: Any = settings.config.get(key.removeprefix("config."), "default")
    else:
        value = getattr(settings, key)
    return str(value)


# ---------------------------------------------------------------- watching


class StartWatch:
    """Follows one start on the control socket and shows its phases. Never stops the engine."""

    def __init__(self, name: str, out: Output, timeout_s: float) -> None:
        self.name = name
        self.out = out
        self.timeout_s = timeout_s
        self._show = StartShow(name, out)
        self._end = time.monotonic() + timeout_s

    def until_ready(self) -> EngineView:
        """The view of the engine once it is up. Raises StartFailed, Deadline, WrongState, Stalled."""
        last: EngineView | None = None
        try:
            for view in self._views():
                last = view
                self._show.show(view)
                if view.state in UP:
                    return view
                check_start(view)
                if time.monotonic() > self._end:
                    raise self._too_long(view)
        except (EngineDied, NotRunning):
            pass
        except Unreachable:
            entry = EngineEntry.read(self.name)
            if entry.liveness == "running" and not entry.is_over:
                raise
        finally:
            self.out.clear_live()
        raise start_failed(self._last_words(last))

    def _views(self) -> Iterator[EngineView]:
        from enginectl.client import open_control

        interval_s = 0.2 if self.out.is_live else 1.0
        with (
            open_control(self.name) as client,
            contextlib.closing(
                client.stream("watch", WatchArgs(interval_s=interval_s), EngineView, EngineView)
            ) as stream,
        ):
            yield from stream

    def _too_long(self, view: EngineView) -> CtlError:
        phase = next((p.name for p in reversed(view.phases) if p.took_s is None), view.state)
        return Deadline(
            f"engine {self.name!r} was not ready within --timeout {text.seconds(self.timeout_s)} "
            f"(in phase {phase!r}); it goes on starting",
            try_=[f"enginectl wait {self.name} --for ready", f"enginectl logs {self.name} -f"],
        )

    def _last_words(self, last: EngineView | None) -> EngineView:
        """The supervisor is gone: its record says why."""
        EngineEntry.read(self.name).wait_gone(5.0)
        view = EngineEntry.read(self.name).view()
        if not view.phases and last is not None:
            view.phases = last.phases
        return view


class StartShow:
    """What is shown of a start: a headline, each phase as it ends, one live line while it runs."""

    def __init__(self, name: str, out: Output) -> None:
        self.name = name
        self.out = out
        self._shown: set[str] = set()
        self._attempt: tuple[str, int] | None = None
        self._tick = 0

    def show(self, view: EngineView) -> None:
        if view.state in ("starting", "backoff"):
            self._headline(view)
        if self._attempt is not None:
            for phase in view.phases:
                if phase.took_s is not None and phase.name not in self._shown:
                    self._shown.add(phase.name)
                    self.out.say(phase_line(phase, self.out.words_width))
        if view.state == "backoff":
            self._backoff(view)
        running = next((p for p in view.phases if p.took_s is None), None)
        if running is not None and view.state == "starting":
            self._tick += 1
            elapsed_s = max(0.0, time.time() - view.started_at - running.began_s) if view.started_at else 0.0
            self.out.live(running_phase_line(running, elapsed_s, self._tick))

    def _headline(self, view: EngineView) -> None:
        attempt = (view.instance, view.restarts)
        if attempt == self._attempt or view.state != "starting" or view.process is None:
            return
        self._attempt = attempt
        self._shown.clear()
        self.out.say(
            f"{view.name}  starting  pid {view.process.pid}  instance {view.instance[:6]}  "
            f"log: enginectl logs {view.name} -f"
        )

    def _backoff(self, view: EngineView) -> None:
        mark = f"backoff {view.restarts}"
        if mark in self._shown:
            return
        self._shown.add(mark)
        cause = text.one_line(view.last_exit.cause) if view.last_exit else view.reason
        wait = text.seconds(view.next_restart_in_s) if view.next_restart_in_s is not None else "a moment"
        self.out.say(f"  ✖ {cause or 'ended'}; next attempt in {wait}")


def check_start(view: EngineView) -> None:
    """Raises what a state that never becomes ready amounts to."""
    name = view.name
    if view.state == "draining":
        raise WrongState(
            f"engine {name!r} is draining", try_=[f"enginectl uncordon {name}", f"enginectl wait {name} --for stopped"]
        )
    if view.state == "stalled":
        raise Stalled(f"engine {name!r} is stalled", cause=view.reason, try_=[f"enginectl restart {name}"])
    if view.state in ENDED:
        raise start_failed(view)


def start_failed(view: EngineView) -> StartFailed:
    """The error of a start that ended, from the last view: phase, after how long, exit or signal, first real error."""
    end = view.last_exit
    phase = (end.phase if end else "") or next((p.name for p in view.phases if p.took_s is None), "")
    how = text.exit_text(end)
    took = f" after {text.seconds(end.at - view.started_at)}" if end and end.at > view.started_at > 0 else ""
    where = f" in phase {phase!r}" if phase else ""
    cause = (end.cause if end else "") or view.reason or "the engine said nothing; its log may"
    if end and end.requested:
        return StartFailed(
            f"engine {view.name!r} was stopped while it started", cause=cause, try_=[f"enginectl start {view.name}"]
        )
    return StartFailed(
        f"engine {view.name!r} failed{where}{took}{f' ({how})' if how else ''}",
        cause=cause,
        try_=_remedies(view.name, cause),
        see=[f"enginectl logs {view.name} -n 50", "enginectl help E1203"],
    )


def _remedies(name: str, cause: str) -> list[str]:
    low = cause.lower()
    if "max_model_len" in low:
        return [f"enginectl start {name} --set max_model_len=N"]
    if "kv" in low or "block" in low or "memory" in low:
        return [f"enginectl start {name} --set kv_memory=1GiB", f"enginectl start {name} --dry-run"]
    if "no module named" in low:
        return ["pip install 'enginectl[engine]'"]
    return [f"enginectl status {name}"]
