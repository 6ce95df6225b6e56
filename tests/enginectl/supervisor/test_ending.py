"""Stops that join each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from enginectl.supervisor.ending import begin_stop
from enginectl.supervisor.events import EventLog
from enginectl.supervisor.inflight import InflightTable
from enginectl.supervisor.loop import Future


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
