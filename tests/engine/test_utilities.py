"""Every utility, in every state, twice, against a real engine; and what each is for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.messages import FinishReason
from tests.support.engine_process import Running, stats_with_nothing_left

pytestmark = pytest.mark.e2e
PROMPT = list(range(5, 45))
ARGS: dict[str, list[object]] = {
    "abort_requests": [["nobody"]],
    "set_log_level": ["info"],
    "collective_rpc": ["anything", None, [], {}],
    "add_lora": [None],
    "remove_lora": [1],
    "pin_lora": [1],
    "pause_scheduler": ["keep", False],
}
ENDS_IT = {"shutdown"}
STATES: dict[str, list[tuple[str, list[object]]]] = {
    "idle": [],
    "running": [],
    "paused": [("pause_scheduler", ["keep", False])],
    "asleep": [("sleep", [1, "abort"])],
    "draining": [("shutdown", [60.0])],
}


@pytest.fixture
def slow(tiny_model: Path) -> Iterator[Running]:
    options = {"executor": "tests.support.executors:SlowExecutor", "env": {"TEST_STEP_S": "0.01"}}
    with Running(tiny_model, num_gpu_blocks=64, max_num_seqs=4, **options) as running:
        yield running


def names(running: Running) -> list[str]:
    described = running.frontend.call("describe")
    assert isinstance(described, dict)
    return [row["name"] for row in described["utilities"]]


@pytest.mark.parametrize("state", STATES)
def test_every_utility_answers_in_every_state(slow: Running, state: str) -> None:
    frontend = slow.frontend
    if state in ("running", "draining"):
        frontend.add("long", PROMPT, max_tokens=900)
    for name, args in STATES[state]:
        frontend.call(name, *args)
    for name in sorted(set(names(slow)) - ENDS_IT - {"cancel_shutdown"}):
        for _ in range(2):
            answer = frontend.answer(frontend.ask(name, *ARGS.get(name, [])), 10)
            if answer.failure_message is not None:
                assert name in answer.failure_message or answer.failure_message == "Server shutting down"
    frontend.call("ping")
    assert slow.engine.is_alive()


def test_describe_tells_what_was_asked_and_what_is(slow: Running) -> None:
    told = slow.frontend.call("describe")
    assert isinstance(told, dict)
    assert told["asked"]["num_gpu_blocks"] == told["ready"]["num_gpu_blocks"] == 64
    assert told["architecture"] == "LlamaForCausalLM" and told["pid"] == slow.engine.pid
    pause = next(row for row in told["utilities"] if row["name"] == "pause_scheduler")
    assert [(arg["name"], arg["required"]) for arg in pause["args"]] == [("mode", False), ("clear_cache", False)]


def run_until_token(running: Running, request_id: str, max_tokens: int) -> None:
    found = running.frontend.add(request_id, PROMPT, max_tokens=max_tokens)
    running.frontend.pump(lambda: bool(found.token_ids))


def test_requests_shows_who_runs_and_why_others_wait(slow: Running) -> None:
    for number in range(6):
        slow.frontend.add(f"r{number}", PROMPT, max_tokens=600, priority=number)
    rows: list[dict[str, object]] = []

    def seen() -> bool:
        table = slow.frontend.call("requests")
        rows[:] = table["items"]  # type: ignore[index]
        return len(rows) == 6 and sum(row["state"] == "running" for row in rows) == 4

    slow.frontend.pump(seen, 10, "four running, two waiting")
    by_id = {row["id"]: row for row in rows}
    assert by_id["r0"]["prompt_tokens"] == 40 and by_id["r0"]["max_tokens"] == 600
    assert by_id["r0"]["blocks"] and by_id["r5"]["state"] == "waiting" and by_id["r5"]["waits_for"]


def test_pause_keep_freezes_and_resume_goes_on(slow: Running) -> None:
    frontend = slow.frontend
    run_until_token(slow, "kept", 50)
    frontend.call("pause_scheduler", "keep", False)
    assert frontend.call("is_scheduler_paused") is True and frontend.call("is_sleeping") is True
    before = len(frontend.generations["kept"].token_ids)
    for _ in range(5):
        frontend.call("ping")
    assert len(frontend.generations["kept"].token_ids) == before < 50
    frontend.call("resume_scheduler")
    assert len(frontend.collect("kept").token_ids) == 50
    assert frontend.call("is_scheduler_paused") is False


def test_pause_wait_answers_when_what_runs_is_done_and_holds_back_what_comes(slow: Running) -> None:
    frontend = slow.frontend
    run_until_token(slow, "runs", 30)
    ask = frontend.ask("pause_scheduler", "wait", True)
    frontend.add("comes", PROMPT, max_tokens=2)
    assert frontend.answer(ask).failure_message is None
    assert len(frontend.generations["runs"].token_ids) == 30
    assert not frontend.generations["comes"].token_ids
    frontend.call("resume_scheduler")
    assert frontend.collect("comes").finish_reason is FinishReason.LENGTH


def test_pause_abort_ends_all(slow: Running) -> None:
    run_until_token(slow, "gone", 500)
    slow.frontend.call("pause_scheduler", "abort", True)
    assert slow.frontend.collect("gone").finish_reason is FinishReason.ABORT


def test_a_pending_pause_is_answered_when_the_engine_stops(slow: Running) -> None:
    run_until_token(slow, "runs", 900)
    ask = slow.frontend.ask("pause_scheduler", "wait", True)
    slow.frontend.call("shutdown", 0.0)
    slow.frontend.wait_dead(10)
    assert "Server shutting down" in str(slow.frontend.answer(ask).failure_message)


def test_a_shutdown_that_is_read_too_late_does_nothing(slow: Running) -> None:
    """The clock is the machine's, so it means the same in every process of it."""
    late = slow.frontend.answer(slow.frontend.ask("shutdown", 0.0, time.monotonic() - 0.001))
    assert "read too late" in str(late.failure_message)
    assert slow.frontend.call("is_scheduler_paused") is False
    slow.frontend.call("shutdown", 0.0, time.monotonic() + 60.0)
    slow.frontend.wait_dead(10)


def test_a_call_says_nothing_older_than_the_last_output_or_answer(tiny_model: Path) -> None:
    with Running(tiny_model, num_gpu_blocks=64, executor="tests.support.saboteurs:LatePublisher") as running:
        frontend = running.frontend
        for number in range(5):
            frontend.add(f"ends-{number}", PROMPT, max_tokens=2)
            frontend.collect(f"ends-{number}")
            assert stats_with_nothing_left(frontend)["output_tokens"] >= 2 * (number + 1)
            frontend.add(f"aborted-{number}", PROMPT, max_tokens=900)
            frontend.abort([f"aborted-{number}"])
            frontend.collect(f"aborted-{number}")
            stats_with_nothing_left(frontend)
            begun = frontend.add(f"slept-on-{number}", PROMPT, max_tokens=4)
            frontend.pump(lambda begun=begun: begun.token_ids)
            frontend.call("sleep", 1, "wait")
            assert frontend.call("stats")["sleeping"] is True  # type: ignore[index]
            frontend.call("wake_up")
            assert frontend.call("stats")["sleeping"] is False  # type: ignore[index]


def test_sleep_and_wake_up(slow: Running) -> None:
    frontend = slow.frontend
    frontend.call("sleep", 1, "abort")
    assert frontend.call("is_sleeping") is True
    with pytest.raises(RuntimeError, match="wake_up first"):
        frontend.call("resume_scheduler")
    frontend.add("waits", PROMPT, max_tokens=2)
    frontend.call("ping")
    assert not frontend.generations["waits"].token_ids
    assert frontend.call("wake_up") is True and frontend.call("is_sleeping") is False
    assert frontend.collect("waits").finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("ask", "args", "back"),
    [
        ("sleep", [1, "wait"], "wake_up"),
        ("sleep", [1, "wait"], "resume_scheduler"),
        ("pause_scheduler", ["wait"], "resume_scheduler"),
    ],
)
def test_what_waits_for_quiet_is_taken_back_and_never_comes_later(
    slow: Running, ask: str, args: list[object], back: str
) -> None:
    run_until_token(slow, "runs", 60)
    pending = slow.frontend.ask(ask, *args)
    slow.frontend.call(back)
    said = slow.frontend.answer(pending, 10).failure_message
    assert said is not None and ask in said and back in said
    slow.frontend.collect("runs")
    slow.frontend.call("ping")
    assert slow.frontend.call("is_sleeping") is False
    slow.frontend.add("next", PROMPT, max_tokens=2)
    assert slow.frontend.collect("next").finish_reason is FinishReason.LENGTH


def test_a_wait_for_quiet_ends_when_what_runs_is_kept(slow: Running) -> None:
    run_until_token(slow, "runs", 60)
    pending = slow.frontend.ask("pause_scheduler", "wait")
    slow.frontend.call("pause_scheduler", "keep")
    said = slow.frontend.answer(pending, 10).failure_message
    assert said is not None and "taken back: pause_scheduler with mode keep" in said
    slow.frontend.call("resume_scheduler")
    assert slow.frontend.collect("runs").finish_reason is FinishReason.LENGTH


def test_a_shutdown_that_is_taken_back_at_once_takes_a_sleep_along(tiny_model: Path) -> None:
    """All three calls are read in one turn of the loop."""
    options = {"executor": "tests.support.executors:SlowExecutor", "env": {"TEST_STEP_S": "0.3"}}
    with Running(tiny_model, num_gpu_blocks=64, **options) as running:
        frontend = running.frontend
        run_until_token(running, "runs", 6)
        pending = frontend.ask("sleep", 1, "wait")
        frontend.ask("shutdown", 60.0)
        assert frontend.call("cancel_shutdown") is True
        assert "was cancelled" in (frontend.answer(pending, 10).failure_message or "")
        assert frontend.collect("runs").finish_reason is FinishReason.LENGTH
        frontend.call("ping")
        assert frontend.call("is_sleeping") is False
        frontend.add("next", PROMPT, max_tokens=2)
        assert frontend.collect("next").finish_reason is FinishReason.LENGTH


def test_a_sleep_that_only_pauses_leaves_the_memory(tiny_model: Path) -> None:
    """With a real model: what an executor without memory gives away is not missed."""
    options = {"executor": "uniproc", "kv_memory": "16MiB", "dtype": "float32", "kernels": "eager"}
    with Running(tiny_model, **options) as running:
        frontend = running.frontend
        run_until_token(running, "runs", 100)
        frontend.call("sleep", 0, "wait")
        frontend.collect("runs")
        assert frontend.call("wake_up") is True
        frontend.add("next", PROMPT, max_tokens=3, ignore_eos=True)
        assert frontend.collect("next").finish_reason is FinishReason.LENGTH


def test_reset_prefix_cache_says_false_while_blocks_are_held_unless_they_may_be_preempted(slow: Running) -> None:
    frontend = slow.frontend
    assert frontend.call("reset_prefix_cache") is True
    run_until_token(slow, "holds", 400)
    assert frontend.call("reset_prefix_cache", False, False) is False
    assert frontend.call("reset_prefix_cache", True, False) is True
    assert len(frontend.collect("holds").token_ids) == 400
    stats = frontend.call("stats")
    assert isinstance(stats, dict) and stats["preemptions"] >= 1


@pytest.mark.parametrize(("as_error", "reason"), [(False, FinishReason.ABORT), (True, FinishReason.ERROR)])
def test_abort_requests_says_who_was_live(slow: Running, as_error: bool, reason: FinishReason) -> None:
    run_until_token(slow, "live", 500)
    assert slow.frontend.call("abort_requests", ["nobody", "live"], as_error) == ["live"]
    done = slow.frontend.collect("live")
    assert done.finish_reason is reason
    assert done.stop_reason == ("aborted by operator" if as_error else None)


def test_unsafe_calls_need_a_setting(tiny_model: Path, slow: Running) -> None:
    with pytest.raises(RuntimeError, match="allow_unsafe_calls"):
        slow.frontend.call("profile", True)


def test_log_level_changes_and_comes_back(slow: Running) -> None:
    assert slow.frontend.call("set_log_level", "debug") == "info"
    assert slow.frontend.call("set_log_level", "info") == "debug"
    with pytest.raises(RuntimeError, match="level"):
        slow.frontend.call("set_log_level", "loud")


def test_stacks_name_all_three_threads(slow: Running) -> None:
    text = slow.frontend.call("dump_stacks")
    assert all(name in str(text) for name in ("MainThread", "engine-in", "engine-out"))


def test_the_flight_record_has_the_last_steps_and_no_request(slow: Running) -> None:
    slow.frontend.add("private-name", PROMPT, max_tokens=20)
    slow.frontend.pump(lambda: slow.frontend.call("stats")["finished"]["length"] == 1)  # type: ignore[index]
    rows = slow.frontend.call("flight_record")
    assert isinstance(rows, list)
    assert [row["step"] for row in rows] == list(range(1, 21))
    assert rows[0]["prefill_tokens"] == len(PROMPT) and rows[-1]["tokens"] == 1
    assert all(row["execute_ms"] >= 10 for row in rows)
    assert "private" not in str(rows)
    assert slow.frontend.call("flight_record", 3) == rows[-3:]
    assert slow.frontend.call("flight_record", -1) == []


def instant(running: Running) -> list[Callable[[], object]]:
    lane = ("stats", "requests", "describe", "is_sleeping", "is_scheduler_paused", "dump_stacks", "flight_record")
    return [lambda name=name: running.frontend.call(name, timeout_s=5) for name in lane]  # type: ignore[misc]


def test_the_instant_lane_answers_while_a_step_runs(tiny_model: Path) -> None:
    """One step lasts a minute: whoever waits for it gets no answer within 5 s."""
    options = {"executor": "tests.support.executors:SlowExecutor", "env": {"TEST_STEP_S": "60"}}
    with Running(tiny_model, **options) as running:
        running.frontend.call("requests")
        running.frontend.add("stuck", PROMPT)
        running.frontend.pump(lambda: running.frontend.call("stats")["step_running_s"] is not None)  # type: ignore[index]
        for call in instant(running)[:1] + instant(running)[2:]:
            call()
        with pytest.raises(TimeoutError):
            running.frontend.call("ping", timeout_s=0.5)
