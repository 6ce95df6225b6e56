from __future__ import annotations

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


def test_one_that_runs_and_one_that_waits(ctl: Ctl) -> None:
    ctl.start("t", "--set", "max_num_seqs=1", PACED_STEP_MS="20")
    children = [ctl.generate()]
    first = ctl.wait_running(1)[0]["external_id"]
    children.append(ctl.generate())
    wait_until(lambda: len(ctl.requests()) == 2, 20.0, "two")
    second = next(item["external_id"] for item in ctl.requests() if item["external_id"] != first)
    page = ctl.ok("explain", first).out
    assert page.startswith(f"{first}  running")
    assert "tok/s" in page and "tokens, about" in page and "next:  enginectl" in page
    page = ctl.ok("explain", "-e", "t", second[:-2]).out
    assert page.startswith(f"{second}  waiting")
    assert "all 1 places run" in page and "1 in the line" in page
    assert "about" in page and "steps, at" in page
    assert f"held by    {first}" in page
    assert f"next:  enginectl abort -e t {first}" in page
    item = ctl.ok("explain", second, "-o", "json").document["items"][0]
    assert (item["limit"], item["position"]) == ("sequences", 1)
    assert item["holders"][0]["external_id"] == first
    assert item["expected_start_steps"] > 100
    ctl.ok("abort", "--all", "--yes")
    for child in children:
        child.wait(20)
    gone = ctl("explain", first)
    assert (gone.code, "not in flight any more" in gone.err) == (4, True)


def test_ids_and_engines_that_are_not_there(served: Ctl) -> None:
    nobody = served("explain", "nobody")
    assert (nobody.code, "enginectl requests t" in nobody.err) == (4, True)
    assert served("explain").code == 2
    assert served("explain", "-e", "nobody", "x").code == 4
