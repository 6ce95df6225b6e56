"""Tasks, timers and readiness in one thread."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import Any

import pytest

from enginectl.supervisor.loop import Cancelled, DeadlinePassed, Future, Loop


def run(loop: Loop, body: Coroutine[Any, Any, Any]) -> Any:
    task = loop.spawn(body)
    task.when_done(loop.stop)
    loop.run()
    return task.result()


def test_a_task_waits_for_futures_and_returns() -> None:
    loop = Loop()
    future: Future[int] = Future()
    loop.after(0.01, lambda: future.set_result(3))

    async def body() -> int:
        return await future + await future

    assert run(loop, body()) == 6


def test_a_deadline_passes_and_a_late_result_is_ignored() -> None:
    loop = Loop()
    future: Future[int] = Future()

    async def body() -> str:
        with pytest.raises(DeadlinePassed):
            await loop.within(future, 0.01)
        future.set_result(1)
        await loop.sleep(0.01)
        return "on"

    assert run(loop, body()) == "on"


def test_first_of_several_does_not_cancel_the_others() -> None:
    loop = Loop()
    slow, fast = loop.sleep(0.05), loop.sleep(0.001)

    async def body() -> tuple[bool, bool, bool]:
        hit = await loop.first(slow, fast)
        before = slow.done
        await slow
        return hit, before, await loop.first(Future(), timeout_s=0.001)

    assert run(loop, body()) == (True, False, False)


def test_cancel_runs_finally_once_and_nothing_after() -> None:
    loop = Loop()
    seen: list[str] = []

    async def body() -> None:
        try:
            await loop.sleep(30)
            seen.append("after")
        finally:
            seen.append("finally")

    task = loop.spawn(body())
    loop.after(0.01, task.cancel)
    loop.after(0.02, loop.stop)
    loop.run()
    assert seen == ["finally"] and task.done
    with pytest.raises(Cancelled):
        task.result()


def test_a_fault_ends_its_task_only_and_is_told() -> None:
    loop = Loop()
    faults: list[BaseException] = []
    loop.on_fault = faults.append

    async def bad() -> None:
        raise ValueError("x")

    async def good() -> str:
        await loop.sleep(0.02)
        return "lives"

    loop.spawn(bad())
    assert run(loop, good()) == "lives"
    assert isinstance(faults[0], ValueError)


def test_a_pipe_wakes_its_reader_until_it_is_unwatched() -> None:
    loop = Loop()
    read_fd, write_fd = os.pipe()
    got: list[bytes] = []

    def read() -> None:
        got.append(os.read(read_fd, 10))
        if len(got) == 2:
            loop.unwatch(read_fd)
            loop.after(0.01, loop.stop)
        os.write(write_fd, b"again")

    loop.watch(read_fd, read)
    os.write(write_fd, b"once")
    loop.run()
    assert got == [b"once", b"again"]
    os.close(read_fd)
    os.close(write_fd)


def test_a_long_lived_future_does_not_collect_its_waiters() -> None:
    loop = Loop()
    forever: Future[None] = Future()

    async def body() -> int:
        for _ in range(5000):
            await loop.first(forever, loop.sleep(0.0), timeout_s=3600.0)
        return len(forever._callbacks) + len(loop._timers)

    assert run(loop, body()) < 2500


def test_a_callback_that_raises_is_told_and_the_loop_goes_on() -> None:
    loop = Loop()
    faults: list[BaseException] = []
    loop.on_fault = faults.append

    def bad() -> None:
        raise ValueError("x")

    loop.after(0.0, bad)
    loop.soon(bad)
    loop.after(0.01, loop.stop)
    loop.run()
    assert len(faults) == 2


@pytest.mark.parametrize("delay_s", [float("nan"), float("inf"), float("-inf"), -1.0, 1e300])
def test_no_number_given_as_a_delay_disturbs_the_other_timers(delay_s: float) -> None:
    loop, ran = Loop(), list[int]()
    for number in range(6):
        loop.after(0.001 * number, lambda number=number: ran.append(number))  # type: ignore[misc]
        loop.after(delay_s, lambda: None)
    loop.after(0.02, loop.stop)
    loop.run()
    assert ran == list(range(6))


def test_a_cancelled_task_leaves_nothing_with_the_future_it_waited_for() -> None:
    loop = Loop()
    long_lived: Future[None] = Future()

    async def wait() -> None:
        await long_lived

    tasks = [loop.spawn(wait()) for _ in range(3)]

    async def body() -> int:
        for task in tasks[1:]:
            task.cancel()
        return len(long_lived._callbacks)

    assert run(loop, body()) == 1


def test_only_a_loop_that_has_nothing_else_waits_for_a_delay_without_end() -> None:
    loop = Loop()
    loop.after(float("inf"), lambda: None)
    assert loop._wait_ms() > 0
