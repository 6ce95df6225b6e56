"""Waiting for one request of our own seat, across engines."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine.messages import EngineCoreOutput, EngineCoreRequest, FinishReason
from enginectl.errors import EngineDied
from enginectl.supervisor.handlers import generate
from enginectl.supervisor.hold import Hold
from enginectl.supervisor.inflight import InflightTable
from enginectl.supervisor.loop import Future, Loop


def test_who_waits_hears_of_an_end_also_when_the_next_engine_is_there_already() -> None:
    """Its engine ended, its request with it, and another engine began before the waiting task ran."""
    loop, table = Loop(), InflightTable()
    flight = table.add(EngineCoreRequest("a", [1]))
    daemon = SimpleNamespace(
        loop=loop, traffic=SimpleNamespace(hold=Hold(loop, lambda: None)), engine_exit=Future(),
        died=lambda: EngineDied("engine 't' died"),
    )  # fmt: skip
    finished: Future[EngineCoreOutput] = Future()
    task = loop.spawn(generate._wait(daemon, flight, finished))  # type: ignore[arg-type]

    def replace() -> None:
        table.end(flight, FinishReason.ERROR)
        ended, daemon.engine_exit = daemon.engine_exit, Future()
        ended.set_result(None)

    loop.soon(replace)
    task.when_done(loop.stop)
    loop.run()
    with pytest.raises(EngineDied):
        task.result()
