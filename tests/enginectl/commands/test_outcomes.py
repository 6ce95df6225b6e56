"""What several outcomes amount to: one exit code, one document."""

from __future__ import annotations

import io
import json

import pytest

from enginectl.commands import abort, status, stop
from enginectl.control import EngineView, State
from enginectl.control_verbs import AbortOutcome
from enginectl.errors import CtlError, UsageError
from enginectl.output import Output

DONE = AbortOutcome(asked="a", id="a-1", result="aborted")
GONE = AbortOutcome(asked="b", id="b-1", result="already-finished")
NOT_FOUND = AbortOutcome(asked="c", result="not-found")
LATE = AbortOutcome(asked="d", id="d-1", result="timeout")


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(abort, "out", Output(stream, io.StringIO(), json=True))
    return stream


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([DONE, GONE], 0),
        ([], 0),
        ([NOT_FOUND], 4),
        ([NOT_FOUND, NOT_FOUND], 4),
        ([LATE], 124),
        ([NOT_FOUND, LATE], 10),
        ([DONE, NOT_FOUND], 10),
    ],
)
def test_abort(stdout: io.StringIO, items: list[AbortOutcome], code: int) -> None:
    assert abort._report(items, ["enginectl requests t"], 1.0) == code
    assert len(json.loads(stdout.getvalue())["items"]) == len(items)


@pytest.mark.parametrize(("result", "code"), [("not-found", 4), ("ambiguous", 4), ("timeout", 124)])
def test_one_that_failed_is_an_error_with_its_code(monkeypatch: pytest.MonkeyPatch, result: str, code: int) -> None:
    monkeypatch.setattr(abort, "out", Output(io.StringIO(), io.StringIO()))
    item = AbortOutcome(asked="x", result=result)  # type: ignore[arg-type]
    with pytest.raises(CtlError) as caught:
        abort._report([item], ["enginectl requests t"], 1.0)
    assert caught.value.exit == code


def test_stop() -> None:
    fine: stop.Result = {"name": "a", "state": "exited"}
    bad: stop.Result = {"name": "b", "error": {"id": "E1403"}, "exit": 124}
    assert stop._worst([fine, fine]) == 0
    assert stop._worst([bad]) == 124
    assert stop._worst([fine, bad]) == 10


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("ready", 0),
        ("idle", 0),
        ("busy", 0),
        ("saturated", 0),
        ("starting", 5),
        ("draining", 5),
        ("paused", 5),
        ("sleeping", 5),
        ("cordoned", 5),
        ("backoff", 5),
        ("exited", 3),
        ("lost", 69),
        ("unreachable", 69),
        ("failed", 9),
        ("stalled", 11),
    ],
)
def test_judging(state: State, code: int) -> None:
    assert status._judge(EngineView(name="t", state=state)) == code
    if code == 0:
        assert status._judge(EngineView(name="t", state=state, cordoned=True)) == 5


def test_properties_are_found_or_the_nearest_is_named() -> None:
    fields = {"stats": {"running": 3}, "ready": None}
    assert status._dig(fields, "stats.running") == 3
    assert status._dig(fields, "ready.max_model_len") is None
    with pytest.raises(UsageError, match="did you mean 'running'"):
        status._dig(fields, "stats.runing")
    with pytest.raises(UsageError, match="known here: ready, stats"):
        status._dig(fields, "xyz")
