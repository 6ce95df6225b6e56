"""The list of requests while the engine does not answer: the relay's own, in the same order."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from engine.messages import EngineCoreOutput, EngineCoreRequest, SamplingParams
from enginectl.control_verbs import RequestList, RequestsArgs
from enginectl.supervisor.handlers.requests import handle
from enginectl.supervisor.inflight import InflightTable
from enginectl.supervisor.loop import Loop


def asked(limit: int, *, is_holding: bool) -> RequestList:
    """Three small ones and, youngest, one that has far more to come than they."""
    loop, table, answers = Loop(), InflightTable(), list[RequestList]()
    for name, max_tokens in (("a", 9), ("b", 9), ("c", 9), ("hog", 4000)):
        table.add(EngineCoreRequest(name, [1], sampling_params=SamplingParams(max_tokens=max_tokens)))
        table.on_output(EngineCoreOutput(name, [1]), time.monotonic())
    daemon = SimpleNamespace(
        traffic=SimpleNamespace(hold=SimpleNamespace(is_holding=is_holding)), stopping=object(),
        is_without_engine=False, inflight=table, ready=None,
    )  # fmt: skip
    session = SimpleNamespace(reply=answers.append)
    loop.spawn(handle(daemon, session, RequestsArgs(limit=limit))).when_done(loop.stop)  # type: ignore[arg-type]
    loop.run()
    return answers[0]


@pytest.mark.parametrize(("limit", "names"), [(2, ["hog", "a"]), (9, ["hog", "a", "b", "c"]), (-1, [])])
def test_while_it_stops_the_hog_is_first_however_few_are_wanted(limit: int, names: list[str]) -> None:
    found = asked(limit, is_holding=False)
    assert ([view.id for view in found.items], found.total) == (names, 4)
    assert [view.is_hog for view in found.items] == [True, False, False, False][: max(0, limit)]


def test_what_is_held_has_no_hog_and_the_oldest_is_first() -> None:
    found = asked(2, is_holding=True)
    assert [(view.id, view.state, view.is_hog) for view in found.items] == [("a", "held", False), ("b", "held", False)]
    assert found.total == 4
