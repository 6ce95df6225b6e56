"""Stops that join each other, and what a stop says that it did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine.messages import EngineCoreRequest
from enginectl.control import ExitInfo
from enginectl.supervisor import ending
from enginectl.supervisor.ending import begin_stop
from enginectl.supervisor.events import EventLog
from enginectl.supervisor.inflight import InflightTable
from enginectl.supervisor.kinds import KINDS
from enginectl.supervisor.loop import Future, Loop
from enginectl.supervisor.stopping import Stop


@pytest.fixture
def daemon() -> Any:
    said: list[str] = []
    return SimpleNamespace(
        loop=SimpleNamespace(spawn=lambda body: body.close()), stopping=None, expected="", stop_asked=Future(),
        drain=None, inflight=InflightTable(),
        events=EventLog(lambda line: None), said=said, notifier=SimpleNamespace(stopping=said.append),
        changed=lambda: None,
    )  # fmt: skip


def test_a_stop_that_joins_a_restart_is_told_to_the_service_manager_once(daemon: Any) -> None:
    restart = begin_stop(daemon, 5.0, 1.0, by="restart", keeps_supervisor=True)
    assert begin_stop(daemon, 5.0, 1.0, by="restart", keeps_supervisor=True) is restart
    assert (daemon.said, restart.keeps_supervisor) == ([], True)
    for _ in range(2):
        assert begin_stop(daemon, 5.0, 1.0, by="stop") is restart
    begin_stop(daemon, 5.0, 1.0, by="restart", keeps_supervisor=True)
    assert (daemon.said, restart.keeps_supervisor) == (["stopping, by stop"], False)


def test_a_stop_is_told_at_once(daemon: Any) -> None:
    stop = begin_stop(daemon, 5.0, 1.0, by="signal TERM")
    assert (daemon.said, daemon.expected, stop.keeps_supervisor) == (["stopping, by signal TERM"], "signal TERM", False)


@pytest.mark.parametrize(("requested", "stages"), [(True, ["drain", "abort"]), (False, ["drain"])])
def test_an_engine_that_dies_in_the_grace_was_not_ended_by_the_stop(
    daemon: Any, monkeypatch: pytest.MonkeyPatch, requested: bool, stages: list[str]
) -> None:
    monkeypatch.setattr(ending, "state_of_engine", lambda daemon: ("busy", ""))
    gone: Future[ExitInfo] = Future()

    async def shut_down(*args: object, timeout_s: float) -> None:
        daemon.inflight.end_all()
        gone.set_result(ExitInfo(requested=requested))

    daemon.loop, daemon.engine_meter, daemon.kind = Loop(), None, KINDS["enginectl"]
    daemon.calls = SimpleNamespace(get=shut_down)
    daemon.inflight.add(EngineCoreRequest("a", [1]))
    stop = daemon.stopping = Stop(5.0, 1.0, by="stop")
    daemon.loop.spawn(ending._ask(daemon, stop, gone)).when_done(daemon.loop.stop)
    daemon.loop.run()
    assert [stage.stage for stage in stop.stages] == stages
