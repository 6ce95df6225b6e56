from __future__ import annotations

import json

import pytest

from tests.support.ctl import Ctl

pytestmark = pytest.mark.e2e


def test_a_result_is_json_on_stdout_and_its_time_on_stderr(served: Ctl) -> None:
    result = served.ok("call", "ping")
    assert set(json.loads(result.out)) == {"loop_counter", "step_counter"}
    assert "ms" in result.err
    document = served.ok("call", "-e", "t", "get_supported_tasks", "-o", "json").document
    assert document["value"] == ["generate"]


def test_the_table_is_listed_and_described(served: Ctl) -> None:
    names = [item["name"] for item in served.ok("call", "--list", "-o", "json").document["items"]]
    assert {"ping", "stats", "reset_prefix_cache"} <= set(names)
    assert "reset_running_requests: bool = false" in served.ok("call", "--describe", "reset_prefix_cache").out


def test_arguments_are_checked_before_sending(served: Ctl) -> None:
    before = json.loads(served.ok("call", "ping").out)["loop_counter"]
    wrong = served("call", "set_log_level", "--arg", "level=infoo")
    assert wrong.code == 2
    assert "did you mean 'info'" in wrong.err
    assert served("call", "pingg").code == 4
    after = json.loads(served.ok("call", "ping").out)["loop_counter"]
    assert after - before < 10
    assert json.loads(served.ok("call", "set_log_level", "--args-json", '["info"]').out) == "info"
    assert json.loads(served.ok("call", "set_log_level", "--args-json", "-", stdin='{"level": "info"}').out) == "info"


def test_unsafe_utilities_are_refused_without_yes(served: Ctl) -> None:
    result = served("call", "profile", "-o", "json")
    assert result.code == 6
    assert result.document["id"] == "E1106"


def test_what_the_engine_refuses_is_its_error(served: Ctl) -> None:
    result = served("call", "add_lora", "1")
    assert result.code == 1
    assert "LoRA" in result.err


def test_a_deadline_that_passes_is_named(served: Ctl) -> None:
    child = served.generate("--max-tokens", "400")
    served.wait_running(1)
    result = served("call", "pause_scheduler", "wait", "--timeout", "0.3s", "--yes")
    assert result.code == 124
    assert "pause_scheduler" in result.err
    child.wait(30)
    served.ok("call", "resume_scheduler")


def test_disturbing_calls_ask_when_requests_run(served: Ctl) -> None:
    child = served.generate()
    item = served.wait_running(1)[0]
    refused = served("call", "reset_prefix_cache", "--arg", "reset_running_requests=true")
    assert (refused.code, "1 running request" in refused.err) == (6, True)
    done = served.ok("call", "reset_prefix_cache", "--arg", "reset_running_requests=true", "--yes")
    assert json.loads(done.out) is True
    served.ok("abort", item["external_id"])
    child.wait(20)
