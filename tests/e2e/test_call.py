from __future__ import annotations

import json
import os
import re

import pytest

from enginectl import __version__
from tests.support.ctl import Ctl, stopped_engine

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


def test_yes_is_not_offered_where_it_does_not_help(served: Ctl) -> None:
    for words in ([], ["--yes"]):
        refused = served("call", "profile", *words)
        assert refused.code == 6
        assert "--set allow_unsafe_calls=true" in refused.err and "--yes" not in refused.err


def test_the_list_has_types(served: Ctl) -> None:
    row = next(row for row in served.ok("call", "--list").out.splitlines() if row.startswith("sleep "))
    assert "[level: int] [mode: abort|wait|keep]" in row


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sleep", str(2**64)], "sleep: level: whole numbers have at most 64 bits"),
        (["sleep", "--args-json", f"[{-(2**64)}]"], "sleep: level: whole numbers have at most 64 bits"),
        (["wake_up", "--args-json", "[7]"], "wake_up: tags must be a list of texts or null, not 7"),
        (["ping", "--timeout", "1e300"], "at most a year"),
        (["ping", "--timeout", "nan"], "not a duration"),
    ],
)
def test_what_no_message_can_carry_is_a_usage_error(served: Ctl, words: list[str], said: str) -> None:
    refused = served("call", *words)
    assert (refused.code, said in refused.err) == (2, True), refused.err


def test_a_stalled_engine_keeps_nobody_longer_than_asked_and_is_named(ctl: Ctl) -> None:
    ctl.start("t")
    ctl.ok("call", "ping")  # it has described itself by then
    with stopped_engine(ctl):
        assert "ping" in ctl.ok("call", "--list").out  # its table is known
        late = ctl("call", "ping", "--timeout", "1s")
        assert late.code == 124
        assert re.search(r"ping did not answer in [01]\.\d s: engine 't' is stalled for \d+ s", late.err)
        assert "may still carry it out" not in late.err  # it only reads
        resets = ctl("call", "reset_prefix_cache", "--timeout", "300ms")
        assert (resets.code, "may still carry it out" in resets.err) == (124, True)
        assert "state T" in late.err and "enginectl stacks t" in late.err and "enginectl dump t" in late.err


def test_one_event_says_who_called_what_and_how_it_went(served: Ctl) -> None:
    before = served.events()[-1]["seq"]
    child = served.popen("call", "ping")
    child.communicate(timeout=30)
    served("call", "add_lora", "1")
    served.ok("call", "--list")
    ping, lora = [event for event in served.events() if event["seq"] > before]
    assert ping["data"] | {"outcome": ""} == {
        "verb": "call", "subject": "ping", "outcome": "", "uid": os.getuid(), "pid": child.pid, "version": __version__,
    }  # fmt: skip
    assert ping["text"].startswith("call ping by ") and f" pid {child.pid}, " in ping["text"]
    assert "answered in" in ping["text"]
    assert "E1302" in lora["text"] and "LoRA" in lora["text"]


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
