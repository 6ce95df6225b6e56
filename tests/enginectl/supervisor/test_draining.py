"""A drain that the engine cannot take on, and what others asked for while it tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from enginectl.control import ExitInfo
from enginectl.control_verbs import CallArgs, DrainArgs, DrainEnd
from enginectl.errors import CallFailed, CtlError, Deadline, EngineDied
from enginectl.supervisor import draining
from enginectl.supervisor.handlers import call
from enginectl.supervisor.loop import Future, Loop


class Daemon:
    """`meanwhile`: runs while the engine is asked, which then fails with `error`."""

    def __init__(self, error: CtlError, meanwhile: str = "") -> None:
        self.loop = Loop()
        self.calls = self
        self.expected = ""
        self.is_cordoned = False
        self.engine_exit: Future[None] = Future()
        self.description = None
        self.health = None
        self._error = error
        self._meanwhile = meanwhile

    def check_serving(self, act: str) -> None:
        pass

    async def get(self, utility: str, *args: object, timeout_s: float) -> object:
        self.expected = self._meanwhile or self.expected
        raise self._error

    async def raw(self, utility: str, args: list[Raw], timeout_s: float) -> Raw:
        self.expected = self._meanwhile or self.expected
        raise self._error

    def fails(self, body: Any) -> None:
        task = self.loop.spawn(body)
        task.when_done(self.loop.stop)
        self.loop.run()
        with pytest.raises(type(self._error)):
            task.result()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "late", lambda daemon, text: Deadline(text))
    monkeypatch.setattr(draining, "_take_back", lambda daemon: _nothing())


async def _nothing() -> None:
    pass


@pytest.mark.parametrize("error", [Deadline("late"), CallFailed("no"), EngineDied("gone")])
@pytest.mark.parametrize("meanwhile", ["stop", "kill", ""])
def test_an_end_that_others_asked_for_meanwhile_stays_asked_for(error: CtlError, meanwhile: str) -> None:
    daemon = Daemon(error, meanwhile)
    drain = SimpleNamespace(args=DrainArgs(), was_cordoned=False)
    daemon.fails(draining._by_engine(daemon, drain))  # type: ignore[arg-type]
    assert daemon.expected == meanwhile


def test_an_engine_that_dies_while_it_is_asked_died_while_it_was_drained() -> None:
    """So the keeper and its clients judge alike: nobody is told that none will come, and then one comes."""
    daemon = Daemon(EngineDied("gone"))
    daemon.engine_exit.set_result(None)
    daemon.fails(draining._by_engine(daemon, SimpleNamespace(args=DrainArgs(), was_cordoned=False)))  # type: ignore[arg-type]
    assert daemon.expected == "drain"


def run(daemon: Daemon, body: Any) -> Any:
    task = daemon.loop.spawn(body)
    task.when_done(daemon.loop.stop)
    daemon.loop.run()
    return task.result()


def drain_of(**args: Any) -> Any:
    return SimpleNamespace(
        args=DrainArgs(grace_s=0.0, **args), was_cordoned=False, is_cancelled=False, is_overdue=False,
        update=lambda: None, result=lambda drained, detail="": DrainEnd(drained=drained, detail=detail),
    )  # fmt: skip


def test_a_drain_whose_engine_has_been_replaced_ends_with_the_engine_that_it_drained() -> None:
    """The next one is there before the drain looks."""

    class Replaced(Daemon):
        async def get(self, utility: str, *args: object, timeout_s: float) -> object:
            self.engine_exit.set_result(ExitInfo(requested=True))  # type: ignore[arg-type]
            self.engine_exit, self.gone = Future(), Future()
            self.gone.set_result(None)
            return None

    daemon = Replaced(EngineDied("unused"))
    assert run(daemon, draining._by_engine(daemon, drain_of())).drained  # type: ignore[arg-type]


def test_a_drain_that_stops_nothing_ends_though_the_engine_lets_go_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted: list[int] = []

    async def abort(daemon: Daemon) -> None:
        aborted.append(1)

    monkeypatch.setattr(draining, "_abort_rest", abort)
    monkeypatch.setattr(draining, "OVERDUE_S", 0.2)
    monkeypatch.setattr(draining, "EVERY_S", 0.05)
    daemon = Daemon(EngineDied("unused"))
    daemon.inflight = ["kept"]  # type: ignore[attr-defined]
    end = run(daemon, draining._by_supervisor(daemon, drain_of(stop=False)))  # type: ignore[arg-type]
    assert (end.drained, end.detail, aborted) == (False, "1 request not let go of by the engine", [1])


@pytest.mark.parametrize("before", ["drain", "stop", ""])
def test_a_shutdown_that_the_engine_refuses_takes_nothing_from_who_asked_before(before: str) -> None:
    daemon = Daemon(CallFailed("shutdown: no such argument"))
    daemon.expected = before
    args = CallArgs(utility="shutdown", args=[Raw(msgspec.msgpack.encode("x"))])
    daemon.fails(call.handle(daemon, SimpleNamespace(subject=""), args))  # type: ignore[arg-type]
    assert daemon.expected == before
