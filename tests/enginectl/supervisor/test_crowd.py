"""Hundreds of callers at once: all are served, too many are refused with the limit, and losses are told."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.messages import SamplingParams
from enginectl.client import Engine, connect
from enginectl.errors import CtlError, Unreachable, WrongState
from enginectl.identity import is_alive
from enginectl.rundir import save_settings
from enginectl.supervisor.crowd import MAX_FILES, Crowd
from enginectl.supervisor.events import EventLog
from enginectl.supervisor.loop import Loop
from tests.support.rig import Rig
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
PARAMS = SamplingParams(max_tokens=3, ignore_eos=True)
MANY = 400
"""Of callers with a connection and a thread each."""


@contextmanager
def soft_limit(files: int) -> Iterator[None]:
    """For what is started meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Callers:
    """Each a thread that attaches by itself and reads one generation to its end."""

    def __init__(self, count: int) -> None:
        self.done = 0
        self.errors: list[CtlError] = []
        self._lock = threading.Lock()
        self.threads = [threading.Thread(target=self._call) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _call(self) -> None:
        try:
            with connect("t") as engine:
                got = sum(len(chunk.token_ids) for chunk in engine.generate([3, 4, 5], PARAMS))
        except CtlError as error:
            with self._lock:
                self.errors.append(error)
        else:
            with self._lock:
                self.done += got == 3

    def join(self) -> None:
        for thread in self.threads:
            thread.join(120.0)


def in_flight(engine: Engine) -> int:
    stats = engine.status().stats
    return 0 if stats is None else stats.running + stats.waiting


def test_hundreds_of_callers_of_a_paused_engine_are_all_served(rig: Rig) -> None:
    with soft_limit(256):
        pid = rig.launch(rig.settings("t", executor="null"))
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] > 1000
    with connect("t") as engine:
        rig.await_ready(engine)
        engine.call("pause_scheduler", "keep", False)
        before = len(os.listdir("/proc/self/task"))
        callers = Callers(MANY)
        wait_until(lambda: in_flight(engine) == MANY or callers.errors, 60.0, "all of them in flight")
        own = len(os.listdir("/proc/self/task")) - before
        assert own <= MANY + 4  # no threads of zmq for each of them
        engine.call("resume_scheduler")
        callers.join()
        assert (callers.done, callers.errors) == (MANY, [])
        assert "stalled" not in [event.type for event in engine.events()]


def test_one_more_than_there_is_room_for_is_refused_and_looking_is_not(rig: Rig) -> None:
    """The hard limit cannot be taken back: it is that of a process of its own."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160));"
        "from enginectl.launch import launch_supervisor; print(launch_supervisor('t', timeout_s=60.0).pid)"
    )
    save_settings(rig.settings("t", executor="null"))
    rig.remember(int(subprocess.check_output([sys.executable, "-c", code], text=True)))
    with connect("t") as engine:
        rig.await_ready(engine)
        engine.call("pause_scheduler", "keep", False)
        callers = Callers(20)
        wait_until(lambda: len(callers.errors) == 4, 20.0, "those that have no room")
        assert in_flight(engine) == 16
        assert {type(error) for error in callers.errors} == {WrongState}
        assert "16 callers already" in callers.errors[0].message and "160 (ulimit -n)" in callers.errors[0].cause
        assert "LimitNOFILE=65536" in callers.errors[0].try_[0]
        engine.call("resume_scheduler")
        callers.join()
        assert callers.done == 16


def test_callers_that_are_killed_are_one_event_with_their_number(rig: Rig) -> None:
    engine = rig.start(executor="null")
    engine.call("pause_scheduler", "keep", False)
    code = (
        "from engine.messages import SamplingParams; from enginectl.client import connect; import signal;"
        "engine = connect('t');"
        "held = [engine.generate([3, 4], SamplingParams(max_tokens=9), request_id=f'r{n}') for n in range(7)];"
        "signal.pause()"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until(lambda: in_flight(engine) == 7, 30.0, "seven in flight")
    finally:
        child.kill()
        child.wait()
    told = wait_until(lambda: [event for event in engine.events() if event.type == "caller"], 20.0, "the event")
    assert [(event.data["requests"], "7 requests aborted, their callers are gone" in event.text) for event in told] == [
        (7, True)
    ]
    engine.close()


def test_who_leaves_as_a_habit_pushes_no_other_event_out() -> None:
    loop, events = Loop(), EventLog(lambda text: None)
    crowd = Crowd(loop, events, "t")
    for number in range(100):
        loop.after(number * 0.02, lambda number=number: crowd.on_lost(f"r{number}"))  # type: ignore[misc]
    loop.after(2.5, loop.stop)
    loop.run()
    assert len(events.last(100)) == 1


def test_where_no_limit_helps_none_is_advised() -> None:
    crowd = Crowd(Loop(), EventLog(lambda text: None), "t")
    crowd.files, crowd.most = MAX_FILES, 1
    with pytest.raises(WrongState) as caught:
        crowd.check_room(1)
    assert caught.value.try_ == []


def test_a_caller_that_may_open_no_more_files_is_told_that_it_is_its_own_limit(rig: Rig) -> None:
    engine = rig.start(executor="null")
    held = connect("t")
    assert held.control.supervisor is not None
    with soft_limit(3):
        assert is_alive(held.control.supervisor)
        with pytest.raises(Unreachable, match="this process has reached its limit of open files"):
            held.status()
    assert held.status().state == "idle"
    held.close()
    engine.close()
