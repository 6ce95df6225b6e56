"""Several pauses and sleeps at once: who puts the engine back, and when nobody does."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from engine.reports import EngineStats
from enginectl.supervisor.events import EventLog
from enginectl.supervisor.gates import Attempt
from enginectl.supervisor.loop import Future, Loop


class Daemon:
    """As much of one as an attempt looks at. `undone`: the utilities that put the engine back."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.attempts: list[Attempt] = []
        self.events = EventLog(lambda line: None)
        self.engine_exit: Future[None] = Future()
        self.health = self
        self.calls = self
        self.engine: EngineStats | None = None
        self.stats = EngineStats(phase="running")
        self.undone: list[str] = []
        self.undos: list[str] = []
        self.answered: Future[None] = Future()
        """The engine gets to what puts it back."""
        self.answered.set_result(None)

    async def ask(self) -> EngineStats:
        return self.stats

    async def get(self, utility: str, kind: type[object], timeout_s: float) -> object:
        self.undone.append(utility)
        await self.answered
        return None

    def changed(self) -> None:
        self.loop.stop()

    def run(self, body: Coroutine[Any, Any, Any]) -> None:
        self.loop._stopping = False
        self.loop.spawn(body).when_done(self.loop.stop)
        self.loop.run()

    def begin(self, act: str) -> Attempt:
        """One that has looked at the engine and now waits for it."""
        attempt = Attempt(self, act)  # type: ignore[arg-type]
        self.run(attempt.look())
        return attempt

    def fail(self, attempt: Attempt) -> list[str]:
        """What was called in the engine because of it."""
        self.undone = []
        undo = attempt.leave("late")
        if undo is not None:
            self.loop._stopping = False
            undo.when_done(self.loop.stop)
            self.loop.run()
        return self.undone

    def done(self, attempt: Attempt) -> None:
        attempt.is_done()
        attempt.leave("")


def begin_two(daemon: Daemon, *acts: str) -> list[Attempt]:
    """Both look before either has done anything."""
    attempts = [Attempt(daemon, act) for act in acts]  # type: ignore[arg-type]
    for attempt in attempts:
        daemon.run(attempt.look())
    return attempts


@pytest.mark.parametrize(("act", "utility"), [("pause", "resume_scheduler"), ("sleep", "wake_up")])
def test_one_alone_is_taken_back_once(act: str, utility: str) -> None:
    daemon = Daemon()
    attempt = daemon.begin(act)
    assert (daemon.fail(attempt), daemon.fail(attempt)) == ([utility], [])
    assert [event.text for event in daemon.events.last(5)] == ["taken back: late"]


@pytest.mark.parametrize("first_to_fail", [0, 1])
def test_of_two_at_once_the_first_to_fail_leaves_the_other_alone(first_to_fail: int) -> None:
    daemon = Daemon()
    two = begin_two(daemon, "pause", "pause")
    assert daemon.fail(two.pop(first_to_fail)) == []
    daemon.done(two[0])
    assert (daemon.undone, daemon.attempts) == ([], [])


@pytest.mark.parametrize("first_to_fail", [0, 1])
@pytest.mark.parametrize(
    ("acts", "utility"), [(("pause", "pause"), "resume_scheduler"), (("pause", "sleep"), "wake_up")]
)
def test_of_two_that_fail_the_last_takes_both_back(acts: tuple[str, str], utility: str, first_to_fail: int) -> None:
    daemon = Daemon()
    two = begin_two(daemon, *acts)
    assert daemon.fail(two.pop(first_to_fail)) == []
    assert daemon.fail(two[0]) == [utility]


def test_one_that_saw_the_pause_of_another_takes_that_back_too() -> None:
    daemon = Daemon()
    first = daemon.begin("pause")
    daemon.stats = EngineStats(phase="running", paused="wait")
    second = daemon.begin("pause")
    assert daemon.fail(first) == []
    second.did_nothing()
    assert daemon.fail(second) == ["resume_scheduler"]


def test_after_one_that_is_done_nobody_takes_anything_back() -> None:
    daemon = Daemon()
    first, second = begin_two(daemon, "pause", "sleep")
    daemon.done(second)
    assert daemon.fail(first) == []


def test_a_resume_takes_the_place_of_what_was_begun_before_it() -> None:
    daemon = Daemon()
    pause = daemon.begin("pause")
    resume = daemon.begin("resume")
    assert (daemon.fail(pause), daemon.fail(resume)) == ([], [])
    assert daemon.fail(daemon.begin("pause")) == ["resume_scheduler"]


@pytest.mark.parametrize("stats", [{"paused": "keep"}, {"sleeping": True}])
def test_a_pause_that_was_there_before_stays(stats: dict[str, object]) -> None:
    daemon = Daemon()
    daemon.stats = EngineStats(phase="running", **stats)  # type: ignore[arg-type]
    assert daemon.fail(daemon.begin("pause")) == []


def test_what_was_refused_or_died_with_its_engine_is_not_taken_back() -> None:
    daemon = Daemon()
    refused, lost = daemon.begin("pause"), daemon.begin("pause")
    refused.did_nothing()
    assert daemon.fail(refused) == []
    daemon.engine_exit.set_result(None)
    assert daemon.fail(lost) == []


@pytest.mark.parametrize(("before", "utility"), [("pause", "resume_scheduler"), ("sleep", "wake_up")])
def test_one_that_begins_while_another_is_taken_back_is_taken_back_itself(before: str, utility: str) -> None:
    """It still sees the pause of the first, which will be over when its own begins."""
    daemon = Daemon()
    first = daemon.begin(before)
    daemon.stats = EngineStats(phase="running", paused="wait")
    daemon.answered = Future()
    first.leave("late")
    second = daemon.begin("pause")
    daemon.answered.set_result(None)
    assert daemon.fail(second) == [utility]
    assert daemon.fail(daemon.begin("pause")) == [] and not daemon.undos  # that pause is there to stay
