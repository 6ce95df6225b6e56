from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.ctl import Ctl, stopped_engine

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("form", ["engine", "external", "prefix"])
def test_just_that_one_ends_by_any_form_of_its_id(served: Ctl, form: str) -> None:
    victim, other = served.generate(), served.generate()
    first, second = served.wait_running(2)[:2]
    given = {"engine": first["id"], "external": first["external_id"], "prefix": first["external_id"][:-3]}[form]
    result = served.ok("abort", given, "-o", "json")
    assert [item["result"] for item in result.document["items"]] == ["aborted"]
    left = [item["id"] for item in served.requests()]
    assert left == [second["id"]]
    served.ok("abort", second["id"])
    codes = sorted([victim.wait(20), other.wait(20)])
    assert codes == [1, 1]
    assert "aborted by operator" in victim.communicate()[1] + other.communicate()[1]


def test_not_found_is_4_and_some_is_10(served: Ctl) -> None:
    assert served("abort", "nobody").code == 4
    document = served("abort", "nobody", "-o", "json").document
    assert document["items"][0]["result"] == "not-found"
    child = served.generate()
    item = served.wait_running(1)[0]
    both = served("abort", item["id"], "nobody", "-o", "json")
    assert both.code == 10
    assert [one["result"] for one in both.document["items"]] == ["aborted", "not-found"]
    child.wait(20)


def test_an_ambiguous_prefix_ends_nothing(served: Ctl) -> None:
    children = [served.generate(), served.generate()]
    served.wait_running(2)
    result = served("abort", "cmpl-")
    assert result.code == 4
    assert "several" in result.err
    assert len(served.requests()) == 2
    served.ok("abort", "--all", "--yes")
    for child in children:
        child.wait(20)


def test_all_and_older_are_refused_without_yes(served: Ctl) -> None:
    child = served.generate()
    served.wait_running(1)
    assert served("abort", "--all").code == 6
    assert served("abort", "--older", "0s").code == 6
    assert served.ok("abort", "--older", "1h").err.strip().endswith("nothing in flight")
    assert len(served.requests()) == 1
    served.ok("abort", "--older", "0s", "--yes")
    assert served.requests() == []
    child.wait(20)


def test_on_a_stalled_engine_the_deadline_holds_and_the_stall_is_named(stalled: Ctl, request_id: str) -> None:
    one = stalled("abort", "--timeout", "1s", request_id)
    assert one.code == 124
    assert "was not gone in 1.0s" in one.err
    assert re.search(r"cause: engine 't' is stalled for \d+ s: the process is stopped", one.err)
    assert "enginectl stacks t" in one.err and "enginectl restart t" in one.err
    both = stalled("abort", "--timeout", "1s", request_id, "nobody", "-o", "json")
    assert both.code == 10
    timeout = next(item for item in both.document["items"] if item["result"] == "timeout")
    assert "stalled" in timeout["detail"]


@pytest.fixture
def request_id(ctl: Ctl) -> str:
    ctl.start("t", PACED_STEP_MS="10")
    ctl.generate()
    found: str = ctl.wait_running(1)[0]["id"]
    return found


@pytest.fixture
def stalled(ctl: Ctl, request_id: str) -> Iterator[Ctl]:
    with stopped_engine(ctl):
        yield ctl


def test_usage(served: Ctl) -> None:
    assert served("abort").code == 2
    assert served("abort", "x", "--all").code == 2
