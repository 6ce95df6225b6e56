"""When engine-in stays awake: the rule, the thread over real sockets, and a real engine whose loop has work or not."""

from __future__ import annotations

import itertools
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from engine import busy_poll, limits
from engine.busy_poll import BUSY_POLL_S, NEVER, QUICK_S, BusyPoll
from engine.intake import MESSAGE_OVERHEAD_BYTES
from tests.engine.test_io_in import TIMEOUT_S, Loop
from tests.support.engine_process import Running
from tests.support.frontend import RawFrontend
from tests.support.wait import wait_until

LONG_S = 3600.0
"""In place of both times of the rule: quick is every call, and whoever stays awake does so until something ends it."""

# ---------------------------------------------------------------- the rule


def call(rule: BusyPoll, came_at: float, answered_at: float) -> float:
    rule.on_message()
    rule.on_answer(came_at, answered_at)
    return rule.until


def test_a_call_soon_after_the_answer_before_it_keeps_awake_until_a_moment_after_its_own() -> None:
    rule = BusyPoll()
    assert rule.until == NEVER and call(rule, 50.0, 0.0) == NEVER, "the first has none before it"
    assert call(rule, QUICK_S, 100.0) == 100.0 + BUSY_POLL_S, (
        "from one answer to the next call, however long either took"
    )
    assert call(rule, 100.0001, 200.0) == 200.0 + BUSY_POLL_S


def test_a_poller_never_keeps_awake() -> None:
    rule = BusyPoll()
    assert {call(rule, 0.1 * number, 0.1 * number) for number in range(100)} == {NEVER}
    assert call(rule, 0.0, 0.0) != NEVER
    assert call(rule, math.nextafter(QUICK_S, 1), 1.0) == NEVER, "a moment too late"
    assert call(rule, 1.0, 1.0) != NEVER, "the row begins again"


def test_a_message_ends_it_and_one_that_is_no_instant_call_ends_the_row() -> None:
    rule = BusyPoll()
    call(rule, 0.0, 0.0)
    assert call(rule, 0.0, 0.0) != NEVER
    rule.on_message()
    assert rule.until == NEVER
    assert call(rule, 0.0, 0.0) == NEVER and call(rule, 0.0, 0.0) != NEVER


# ---------------------------------------------------------------- the thread


class Looks:
    """How often the thread let others run and looked at its sockets again, instead of sleeping."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._yield = os.sched_yield
        monkeypatch.setattr(os, "sched_yield", self)

    def __call__(self) -> None:
        self.count += 1
        self._yield()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy_poll, "QUICK_S", LONG_S)
    monkeypatch.setattr(busy_poll, "BUSY_POLL_S", LONG_S)


@contextmanager
def running(tmp_path: Path, is_loop_waiting: Callable[[], bool] = lambda: True) -> Iterator[tuple[RawFrontend, Loop]]:
    with RawFrontend(tmp_path, num_clients=2) as frontend:
        loop = Loop(frontend.addresses, is_loop_waiting)
        loop.thread.start()
        try:
            frontend.wait_ready_responses()
            yield frontend, loop
        finally:
            loop.close()


def next_answered(loop: Loop) -> int:
    _, outputs = loop.at_once.get(timeout=TIMEOUT_S)
    assert outputs.utility_output is not None
    return outputs.utility_output.call_id


def ask_and_wait(frontend: RawFrontend, loop: Loop, client: int = 0) -> None:
    asked = frontend.ask("instant", client=client)
    assert next_answered(loop) == asked


def wait_asleep(cpu_s: Callable[[], float]) -> None:
    """Two looks at its clock show the same."""
    last = [-1.0]

    def stands_still() -> bool:
        before, last[0] = last[0], cpu_s()
        return last[0] == before

    wait_until(stands_still, 20.0, "the thread sleeps", every_s=0.1)


def cpu_clock(loop: Loop) -> Callable[[], float]:
    assert loop.thread.ident is not None
    clock = time.pthread_getcpuclockid(loop.thread.ident)
    return lambda: time.clock_gettime(clock)


@pytest.mark.thread
def test_quick_calls_are_answered_once_and_in_order_and_then_it_sleeps(tmp_path: Path) -> None:
    with running(tmp_path) as (frontend, loop):
        for number in range(300):
            ask_and_wait(frontend, loop, number % 2)
        asked = [frontend.ask("instant") for _ in range(300)]
        assert [next_answered(loop) for _ in asked] == asked
        wait_asleep(cpu_clock(loop))
        assert loop.at_once.empty() and loop.output_queue.empty() and loop.input_queue.empty()
        ask_and_wait(frontend, loop)


@pytest.mark.thread
def test_after_two_calls_in_a_row_it_does_not_sleep_and_stop_ends_that(
    tmp_path: Path, looks: Looks, long: None
) -> None:
    with running(tmp_path) as (frontend, loop):
        for _ in range(3):
            for client in (0, 1):
                ask_and_wait(frontend, loop, client)
            before = looks.count
            wait_until(lambda before=before: looks.count > before + 100)  # type: ignore[misc]
        assert loop.thread.stop(5.0)


@pytest.mark.thread
def test_one_call_alone_lets_it_sleep(tmp_path: Path, looks: Looks, long: None) -> None:
    with running(tmp_path) as (frontend, loop):
        ask_and_wait(frontend, loop)
    assert looks.count == 0


@pytest.mark.thread
def test_calls_that_are_not_quick_let_it_sleep(tmp_path: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thread's own clock: no call comes before the answer."""
    monkeypatch.setattr(busy_poll, "QUICK_S", 0.0)
    monkeypatch.setattr(busy_poll, "BUSY_POLL_S", LONG_S)
    with running(tmp_path) as (frontend, loop):
        for _ in range(10):
            ask_and_wait(frontend, loop)
    assert looks.count == 0


@pytest.mark.thread
def test_it_sleeps_while_the_loop_works(tmp_path: Path, looks: Looks, long: None) -> None:
    with running(tmp_path, lambda: False) as (frontend, loop):
        for _ in range(3):
            ask_and_wait(frontend, loop)
    assert looks.count == 0


@pytest.mark.thread
def test_the_loop_is_asked_before_each_look(tmp_path: Path, looks: Looks, long: None) -> None:
    asked = itertools.count(1)
    last = [0]

    def waits_three_times() -> bool:
        last[0] = next(asked)
        return last[0] <= 3

    with running(tmp_path, waits_three_times) as (frontend, loop):
        for _ in range(2):
            ask_and_wait(frontend, loop)
        wait_until(lambda: last[0] == 4)
        wait_asleep(cpu_clock(loop))
    assert looks.count == 3


@pytest.mark.thread
@pytest.mark.parametrize("kind", ["add", "abort", "call for the loop", "junk"])
def test_anything_else_ends_it(tmp_path: Path, looks: Looks, long: None, kind: str) -> None:
    with running(tmp_path) as (frontend, loop):
        for _ in range(2):
            ask_and_wait(frontend, loop)
        wait_until(lambda: looks.count > 10)
        match kind:
            case "add":
                frontend.add("a", [1])
            case "abort":
                frontend.abort(["a"])
            case "call for the loop":
                frontend.ask("pause_scheduler", "keep", True)
            case "junk":
                frontend.send_frames([b"\x00"])
        wait_until(lambda: not loop.input_queue.empty() or loop.counters.rejected_messages)
        before = looks.count
        ask_and_wait(frontend, loop)
    assert looks.count == before


@pytest.mark.thread
def test_it_sleeps_between_looks_at_the_queue_while_a_client_is_not_read(
    tmp_path: Path, looks: Looks, long: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_QUEUED_BYTES", 4 * MESSAGE_OVERHEAD_BYTES)
    with running(tmp_path) as (frontend, loop):
        for number in range(5):
            frontend.add(f"a{number}", [1], client=0)
        wait_until(lambda: loop.input_queue.qsize() >= 4)
        for _ in range(3):
            ask_and_wait(frontend, loop, client=1)
    assert looks.count == 0


@pytest.mark.thread
def test_an_answer_through_the_queue_lets_it_sleep(tmp_path: Path, looks: Looks, long: None) -> None:
    """The output thread has been woken for it then, and may still be at work."""
    with running(tmp_path) as (frontend, loop):
        loop.may_send_at_once = False
        for _ in range(3):
            frontend.ask("instant")
            assert loop.output_queue.get(timeout=TIMEOUT_S)
    assert looks.count == 0


# ---------------------------------------------------------------- an engine


def others_cpu_s(pid: int) -> float:
    """Of all its threads but the main one."""
    tasks = [task for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid)]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@pytest.mark.e2e
def test_an_engine_stays_awake_between_calls_while_it_has_no_work(tiny_model: Path, tmp_path: Path) -> None:
    """In place of the moment an hour. A step lasts as long as a file is there."""
    deadlock = tmp_path / "deadlock"
    options = {"executor": "tests.support.saboteurs:AwakeExecutor", "env": {"PACED_DEADLOCK_FILE": str(deadlock)}}
    with Running(tiny_model, **options) as running:
        frontend, pid = running.frontend, running.engine.pid

        def stays_awake() -> bool:
            for _ in range(2):
                frontend.call("is_sleeping")
            before = others_cpu_s(pid)
            with suppress(AssertionError):  # the loop did not wait yet
                return wait_until(lambda: others_cpu_s(pid) > before + 0.02, 1.0)
            return False

        wait_until(stays_awake, 30.0, "awake before the first request")
        deadlock.touch()
        frontend.add("a", [5, 6, 7], max_tokens=2)
        wait_until(lambda: read_stats(frontend)["step_running_s"], what="a step")
        for _ in range(3):
            frontend.call("is_sleeping")
        wait_asleep(lambda: others_cpu_s(pid))
        deadlock.unlink()
        frontend.collect("a")
        wait_until(stays_awake, 30.0, "awake after the last request")
        running.engine.signal(signal.SIGTERM)
        frontend.wait_dead(5)
        assert running.engine.wait(5) == 0


def read_stats(frontend: RawFrontend) -> dict[str, Any]:
    found = frontend.call("stats")
    assert isinstance(found, dict)
    return found
