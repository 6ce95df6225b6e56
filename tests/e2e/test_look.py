"""ps, status, requests, events, logs, stacks, version, help: looking never changes anything."""

from __future__ import annotations

import json

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


def test_ps_lists_the_engine(served: Ctl) -> None:
    result = served.ok("ps")
    header, row = result.out.splitlines()
    assert header.split()[:3] == ["NAME", "STATE", "PID"]
    assert row.split()[:2] == ["t", "idle"]
    item = served.ok("ps", "-o", "json").document["items"][0]
    assert (item["name"], item["state"], item["process"]["pid"]) == ("t", "idle", int(row.split()[2]))


def test_ps_tells_that_none_runs_from_that_there_is_none(ctl: Ctl) -> None:
    assert ctl.ok("ps").err.startswith("no engines yet")
    ctl.start("t")
    ctl.ok("stop", "t")
    assert ctl.ok("ps", "--running").err.strip() == "none of 1 engine runs; `enginectl ps` lists them"
    assert ctl.ok("ps").err == ""


def test_status_is_a_page_and_a_document(served: Ctl) -> None:
    page = served.ok("status").out
    assert page.startswith("t  idle")
    assert "max_model_len" in page
    assert "next:  enginectl" in page
    document = served.ok("status", "t", "-o", "json").document
    assert document["kind"] == "Engine"
    assert document["ready"]["num_gpu_blocks"] == 512


def test_status_prints_single_properties(served: Ctl) -> None:
    assert served.ok("status", "-p", "state", "-p", "stats.running").out == "idle\n0\n"
    wrong = served("status", "-p", "stats.runing")
    assert (wrong.code, "'running'" in wrong.err) == (2, True)


def test_reporting_is_not_judging(served: Ctl) -> None:
    assert served("status", "--exit-status").code == 0
    served.ok("cordon")
    try:
        assert served("status").code == 0
        assert served("status", "--exit-status").code == 5
    finally:
        served.ok("uncordon")


def test_unknown_names_suggest(served: Ctl) -> None:
    result = served("status", "tt")
    assert result.code == 4
    assert "did you mean 't'" in result.err
    assert served("status", "../x").code == 2


def test_requests_lists_what_runs(served: Ctl) -> None:
    assert served.ok("requests").err.strip() == "nothing in flight"
    child = served.generate()
    item = served.wait_running(1)[0]
    assert item["state"] == "running"
    row = served.ok("requests", "t").out.splitlines()[1].split()
    assert row[:2] == [item["external_id"], "running"]
    served.ok("abort", item["id"])
    child.wait(20)


def test_while_it_stops_requests_still_tells_who_is_there(ctl: Ctl) -> None:
    lock = ctl.base / "deadlock"
    ctl.start("t", PACED_DEADLOCK_FILE=str(lock))
    child = ctl.generate()
    ctl.wait_running(1)
    lock.touch()
    stop = ctl.popen("stop", "t", "--yes", "--grace", "2s")
    wait_until(lambda: ctl("status", "t", "-p", "state").out == "stopping\n", 20.0, "stopping")
    found = ctl("requests", "t", "-o", "json")
    lock.unlink()
    assert found.code == 0 and found.document["total"] == 1
    stop.wait(40)
    child.wait(20)


def test_events_and_logs(served: Ctl) -> None:
    assert "ready" in served.ok("events", "t").out
    types = [item["type"] for item in served.ok("events", "-o", "json").document["items"]]
    assert "ready" in types
    log = served.ok("logs", "t", "-n", "3").out.splitlines()
    assert 0 < len(log) <= 3
    assert not any(line.startswith("--- enginectl") for line in served.ok("logs", "-n", "1000").out.splitlines())
    assert served.ok("logs", "-o", "json").document["lines"]


def test_stacks_show_the_loop(served: Ctl) -> None:
    assert "run_busy_loop" in served.ok("stacks").out


def test_version_needs_no_engine(served: Ctl) -> None:
    document = served.ok("version", "-o", "json").document
    assert document["engines"]["t"] == document["version"]
    assert served.ok("--version").out == f"enginectl {document['version']}\n"


def test_help_explains_errors_and_verbs(served: Ctl) -> None:
    assert "failed before READY" in served.ok("help", "e1203").out
    assert "Usage: enginectl drain" in served.ok("help", "drain").out
    assert served("help", "E1204x").code == 2


@pytest.mark.parametrize(
    "args", [["ps"], ["status"], ["requests"], ["events"], ["call", "--list"], ["version"], ["help"]]
)
def test_every_look_has_one_document(served: Ctl, args: list[str]) -> None:
    result = served.ok(*args, "-o", "json")
    json.loads(result.out)
    assert result.out.count("\n") == 1


def test_following_ends_with_the_engine(ctl: Ctl) -> None:
    ctl.start("t")
    logs, events = ctl.popen("logs", "t", "-f", "-n", "2"), ctl.popen("events", "t", "-f", "-o", "json")
    first = json.loads(events.stdout.readline())  # type: ignore[union-attr]
    assert (first["seq"], first["schema"]) == (1, "enginectl/v1")
    ctl.ok("stop", "t")
    out, _ = logs.communicate(timeout=20)
    rest = events.stdout.read()  # type: ignore[union-attr]  # communicate() would lose what readline() buffered
    events.wait(20)
    assert (logs.returncode, events.returncode) == (0, 0)
    assert len(out.splitlines()) > 2
    assert [json.loads(line)["seq"] for line in rest.splitlines()] == list(range(2, 2 + len(rest.splitlines())))
