"""The engine process from the socket: requests, aborts, calls, noise, shutdown and death, with a real process."""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import zmq

from engine.errors import EngineDeadError
from engine.messages import EngineCoreRequest, FinishReason, SamplingParams
from tests.support.engine_process import Running, stats_with_nothing_left
from tests.support.frontend import Generation

pytestmark = pytest.mark.e2e
PROMPT = [5, 6, 7, 8]


def assert_still_right(running: Running, request_id: str) -> None:
    """The next good request gives what it always gives, and nothing is left behind."""
    found = running.frontend
    found.add(request_id, PROMPT, max_tokens=5)
    assert found.collect(request_id).token_ids == [7] * 5
    stats_with_nothing_left(found)


def finals(generations: list[Generation]) -> Counter[str]:
    assert all(one.num_finals == 1 for one in generations), [
        one.request_id for one in generations if one.num_finals != 1
    ]
    return Counter(str(one.finish_reason) for one in generations)


# ---------------------------------------------------------------- requests


def test_many_requests_each_get_their_tokens_and_one_final_output(shared: Running) -> None:
    for number in range(100):
        shared.frontend.add(f"many-{number}", PROMPT, max_tokens=1 + number % 7, client=number % 2)
    done = shared.frontend.collect_all([f"many-{number}" for number in range(100)])
    assert [len(one.token_ids) for one in done] == [1 + number % 7 for number in range(100)]
    assert finals(done) == {"length": 100}


def test_outputs_go_to_the_client_that_is_named(shared: Running) -> None:
    shared.frontend.messages.clear()
    shared.frontend.add("mine", PROMPT, client=1)
    shared.frontend.collect("mine")
    seats = {client for client, message in shared.frontend.messages for o in message.outputs if o.request_id == "mine"}
    assert seats == {1}


def test_steps_tell_what_lay_between_them_and_what_being_watched_cost(shared: Running) -> None:
    """No rest counts as time between two steps: the first step after one tells nothing."""
    frontend = shared.frontend
    for name in ("first", "second"):
        frontend.messages.clear()
        frontend.add(f"timed-{name}", PROMPT, max_tokens=4)
        frontend.collect(f"timed-{name}")
        told = [m.scheduler_stats.step_timings for _, m in frontend.messages if m.scheduler_stats and m.outputs]
        assert len(told) >= 4 and all(told)
        assert told[0].idle_ms is None and told[0].observe_ms is None
        assert all(one.idle_ms > 0 and one.observe_ms > 0 for one in told[1:4])


def test_an_id_may_come_back_at_once(shared: Running) -> None:
    """add X, abort X, add X, a thousand times: the last always completes, and no abort hits a later one."""
    frontend = shared.frontend
    for number in range(1000):
        frontend.add("again", PROMPT, max_tokens=200)
        frontend.abort(["again"])
        last = frontend.add("again", PROMPT, max_tokens=3)
        frontend.pump(lambda last=last: last.finish_reason is FinishReason.LENGTH, 30, f"round {number}")  # type: ignore[misc]
    assert_still_right(shared, "after-again")


def test_aborts_are_idempotent_and_strangers_are_ignored(shared: Running) -> None:
    frontend = shared.frontend
    frontend.add("victim", PROMPT, max_tokens=2000)
    frontend.abort(["stranger", "victim", "victim", ""] + [f"no-{n}" for n in range(1000)])
    frontend.abort(["victim"])
    frontend.abort([])
    assert frontend.collect("victim").finish_reason is FinishReason.ABORT
    frontend.call("ping")
    assert frontend.generations["victim"].num_finals == 1
    assert_still_right(shared, "after-aborts")


def test_a_second_live_request_with_one_id_is_refused_and_the_first_goes_on(tiny_model: Path) -> None:
    slow = {"executor": "tests.support.executors:SlowExecutor", "env": {"TEST_STEP_S": "0.02"}}
    with Running(tiny_model, num_clients=2, **slow) as running:
        first = running.frontend.add("twin", PROMPT, max_tokens=20)
        running.frontend.pump(lambda: len(first.token_ids) > 0)
        second = running.frontend.add("twin", PROMPT, max_tokens=20, client=1)
        running.frontend.pump(lambda: second.is_finished)
        assert second.finish_reason is FinishReason.ERROR and "already in flight" in str(second.stop_reason)
        running.frontend.generations["twin"] = first
        running.frontend.pump(lambda: first.is_finished)
        assert first.finish_reason is FinishReason.LENGTH


def test_abort_immediately_is_admitted_and_aborted(shared: Running) -> None:
    request = EngineCoreRequest("brief", PROMPT, sampling_params=SamplingParams(max_tokens=50), abort_immediately=True)
    shared.frontend.send_request(request)
    done = shared.frontend.collect("brief")
    assert done.finish_reason is FinishReason.ABORT and done.num_finals == 1


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"prompt_token_ids": []}, "prompt"),
        ({"prompt_token_ids": [1] * 2048}, "2,?048"),
        ({"prompt_token_ids": [-1]}, "-1"),
        ({"prompt_token_ids": [320]}, "320"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": float("nan")}, "temperature"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
        ({"stop_token_ids": [2**31]}, "2147483648|2,147,483,648"),
        ({"logit_bias": {99999: 1.0}}, "99999|99,999"),
        ({"n": 2}, "n"),
    ],
)
def test_a_request_that_cannot_run_is_refused_with_the_value(
    shared: Running, fields: dict[str, object], names: str
) -> None:
    import re

    sampling = {key: value for key, value in fields.items() if key != "prompt_token_ids"}
    prompt = fields.get("prompt_token_ids", PROMPT)
    shared.frontend.add("refused", prompt, **sampling)  # type: ignore[arg-type]
    done = shared.frontend.collect("refused")
    assert done.finish_reason is FinishReason.ERROR and done.num_finals == 1
    assert re.search(names, str(done.stop_reason)), done.stop_reason
    assert_still_right(shared, "after-refusal")


# ---------------------------------------------------------------- calls


def test_an_unknown_utility_is_named_and_the_loop_goes_on(shared: Running) -> None:
    with pytest.raises(RuntimeError, match=r"'reset_prefix_cach' is not a utility.*reset_prefix_cache"):
        shared.frontend.call("reset_prefix_cach")
    assert_still_right(shared, "after-unknown")


def test_call_ids_above_63_bits_come_back(shared: Running) -> None:
    assert shared.frontend.ask("ping") > 2**63
    shared.frontend.call("ping")


def test_each_client_gets_its_own_answers(shared: Running) -> None:
    ids = [(client, shared.frontend.ask("ping", client=client)) for client in (0, 1) * 20]
    for _, call_id in ids:
        assert shared.frontend.answer(call_id).failure_message is None


# ---------------------------------------------------------------- noise


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


def pickled() -> bytes:
    """A pickle that would create a file, had anybody unpickled it: built by hand from its opcodes."""
    return b"cposix\nsystem\n(S'touch /tmp/enginectl-was-unpickled'\ntR."


def extension(code: int, data: bytes) -> bytes:
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(code, data))


NOISE: list[list[bytes]] = [
    [],
    [b""],
    [b"\x09", b"\x90"],
    [b"\x00"],
    [b"\x00", b""],
    [b"\x00", b"\xc1"],
    [b"\x00", b"\x81\xa1a\x01"],
    [b"\x03", b"\x94\x00\x01"],
    [b"\x01", b"\x93\x01\x02\x03"],
    [b"\x00", nested(5_000)],
    [b"\x03", nested(5_000)],
    [b"\x00", nested(200_000)],
    [b"\x03", nested(200_000)],
    [b"\x01", nested(200_000)],
    [b"\x00"] * 60,
    [b"\x00", random.Random(1).randbytes(2**20)],
    [random.Random(2).randbytes(2**20)],
    [b"\x00", b"\xdd\xff\xff\xff\xff"],
    [b"\x00", pickled()],
    [pickled(), pickled()],
    *[[b"\x00", b"\x99\xa1p\x91\x01" + extension(code, pickled()) + b"\xc0" * 6] for code in (1, 2, 3, 17)],
    *[[b"\x03", b"\x94\x00" + bytes([6 + code]) + b"\xa4ping\x91" + extension(code, pickled())] for code in (1, 2)],
    [b"\x04", b"\x90"],
    [b"\x05", b"\x90"],
]


def throw_noise(running: Running) -> None:
    for call_id in (1, 7, 8):
        running.frontend.expect_answer(call_id)
    for frames in NOISE:
        running.frontend.send_frames(frames)
    rng = random.Random(3)
    for _ in range(300):
        running.frontend.send_frames([rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(6))])


@pytest.mark.parametrize("interpreter", [(), ("-OO",)])
def test_noise_is_counted_and_dropped(tiny_model: Path, interpreter: tuple[str, ...]) -> None:
    with Running(tiny_model, executor="null", num_gpu_blocks=256, interpreter=interpreter) as running:
        assert_still_right(running, "before")
        throw_noise(running)
        assert_still_right(running, "after")
        stats = running.frontend.call("stats")
        assert isinstance(stats, dict) and stats["rejected_messages"] >= len(NOISE) - 6
        assert not Path("/tmp/enginectl-was-unpickled").exists()


def test_a_body_that_is_wrong_after_its_id_is_answered(shared: Running) -> None:
    shared.frontend.generations["half"] = half = Generation("half", 0)
    shared.frontend.send_frames([b"\x00", msgspec.msgpack.encode(["half", "not a list", None, {}, None, 0.0])])
    shared.frontend.pump(lambda: half.is_finished, 10, "an answer to the id that could be read")
    assert half.finish_reason is FinishReason.ERROR


# ---------------------------------------------------------------- the end


def start_slow(model: Path, step_s: float = 0.02, **options: object) -> Running:
    return Running(
        model,
        executor="tests.support.executors:SlowExecutor",
        env={"TEST_STEP_S": str(step_s)},
        max_num_seqs=8,
        **options,
    )


def test_abort_shutdown_gives_each_request_one_final_output_and_then_the_dead_notice(tiny_model: Path) -> None:
    """Eight run, eight wait."""
    with start_slow(tiny_model) as running:
        found = [running.frontend.add(f"r{number}", PROMPT, max_tokens=500) for number in range(16)]
        running.frontend.pump(lambda: sum(bool(one.token_ids) for one in found) == 8)
        running.frontend.call("shutdown", 0.0)
        running.frontend.wait_dead(10)
        assert finals(found) == {"abort": 16}
        assert running.engine.wait() == 0


def test_drain_lets_requests_finish_and_refuses_new_ones(tiny_model: Path) -> None:
    with start_slow(tiny_model) as running:
        frontend = running.frontend
        old = [frontend.add(f"old{number}", PROMPT, max_tokens=40) for number in range(4)]
        frontend.pump(lambda: all(one.token_ids for one in old))
        frontend.call("shutdown", 60.0)
        late = frontend.add("late", PROMPT)
        ask = frontend.ask("reset_mm_cache"), frontend.ask("pause_scheduler"), frontend.ask("is_sleeping")
        frontend.wait_dead(20)
        assert late.finish_reason is FinishReason.ABORT and late.num_finals == 1
        assert finals(old) == {"length": 4} and all(len(one.token_ids) == 40 for one in old)
        assert frontend.answer(ask[0]).failure_message is None
        assert frontend.answer(ask[1]).failure_message == "Server shutting down"
        assert frontend.answer(ask[2]).failure_message is None
        assert running.engine.wait() == 0


def test_the_drain_deadline_is_kept_inside_the_engine(tiny_model: Path) -> None:
    with start_slow(tiny_model) as running:
        found = [running.frontend.add(f"r{number}", PROMPT, max_tokens=1500) for number in range(4)]
        running.frontend.pump(lambda: all(one.token_ids for one in found))
        running.frontend.call("shutdown", 0.5)
        running.frontend.wait_dead(10)
        assert finals(found) == {"abort": 4}
        assert running.engine.wait() == 0


def test_a_drain_can_be_taken_back_but_not_one_that_a_signal_asked_for(tiny_model: Path) -> None:
    with start_slow(tiny_model, flags=("--shutdown-timeout", "30")) as running:
        frontend = running.frontend
        old = frontend.add("old", PROMPT, max_tokens=100)
        frontend.call("shutdown", 60.0)
        assert frontend.call("cancel_shutdown") is True
        frontend.add("new", PROMPT, max_tokens=2)
        assert frontend.collect("new").finish_reason is FinishReason.LENGTH
        running.engine.signal(signal.SIGTERM)
        frontend.pump(lambda: frontend.call("stats")["phase"] == "draining")  # type: ignore[index]
        with pytest.raises(RuntimeError, match="signal"):
            frontend.call("cancel_shutdown")
        frontend.wait_dead(20)
        assert old.finish_reason is FinishReason.LENGTH and running.engine.wait() == 0


@pytest.mark.fault
def test_repeated_signals_never_interrupt_the_clean_up(tiny_model: Path) -> None:
    rng = random.Random(7)
    for number in range(6):
        with start_slow(tiny_model) as running:
            found = [running.frontend.add(f"r{n}", PROMPT, max_tokens=500) for n in range(12)]
            running.frontend.pump(lambda found=found: any(one.token_ids for one in found))  # type: ignore[misc]
            for _ in range(5):
                running.engine.signal(rng.choice([signal.SIGTERM, signal.SIGINT]))
                running.frontend.read_some(rng.uniform(0, 0.02))
            running.frontend.wait_dead(10)
            assert finals(found) == {"abort": 12}, number
            assert running.engine.wait() == 0, running.engine.log


def test_nothing_is_left_unanswered_when_work_arrives_as_a_drain_begins(tiny_model: Path) -> None:
    with Running(tiny_model, executor="null", num_gpu_blocks=256) as running:
        frontend = running.frontend
        found = []
        for number in range(200):
            try:
                found.append(frontend.add(f"r{number}", PROMPT, max_tokens=3))
            except zmq.ZMQError as error:  # this process was so slow that the engine has ended meanwhile
                assert (error.errno, number > 100) == (zmq.EHOSTUNREACH, True)
                break
            if number == 100:
                ask = frontend.ask("shutdown", 30.0)
        frontend.answer(ask)
        frontend.wait_dead(10)
        answered = [one for one in found if one.is_finished]
        assert len(answered) >= 101 and finals(answered).total() == len(answered)
        assert running.engine.wait() == 0


@pytest.mark.parametrize(
    ("executor", "cause"),
    [("RaisingExecutor", "RuntimeError: the model is broken: poison"), ("LosingExecutor", "worker 1 was killed")],
)
def test_death_is_told_to_every_client_with_a_cause_in_the_log(tiny_model: Path, executor: str, cause: str) -> None:
    options = {"executor": f"tests.support.executors:{executor}", "env": {"TEST_STEP_S": "1.5"}}
    with Running(tiny_model, num_clients=3, **options) as running:
        running.frontend.add("good", PROMPT, max_tokens=3)
        running.frontend.collect("good")
        running.frontend.add("poison", PROMPT)
        running.frontend.wait_dead(10)
        assert running.engine.wait() == 1
        assert cause in running.engine.log


def test_what_is_queued_when_an_engine_dies_gets_no_end_that_looks_whole(tiny_model: Path) -> None:
    """ENGINE_CORE_DEAD is an error for each; an abort without a word would be an empty answer."""
    with Running(tiny_model, executor="tests.support.executors:SlowlyRaisingExecutor") as running:
        frontend = running.frontend
        frontend.add("poison", PROMPT)
        frontend.pump(lambda: frontend.call("stats")["step_running_s"] is not None)  # type: ignore[index]
        queued = [frontend.add(f"queued-{number}", PROMPT) for number in range(5)]
        frontend.wait_dead(10)
        assert running.engine.wait() == 1
        assert not any(one.is_finished for one in queued)


def test_a_request_whose_own_part_fails_ends_alone(tiny_model: Path) -> None:
    options = {"executor": "tests.support.executors:FailingRowExecutor", "env": {"TEST_STEP_S": "0.01"}}
    with Running(tiny_model, **options) as running:
        found = [running.frontend.add(name, PROMPT, max_tokens=10) for name in ("a", "poison", "b", "c")]
        running.frontend.pump(lambda: all(one.is_finished for one in found))
        assert finals(found) == {"length": 3, "error": 1}
        assert "out of memory" in str(found[1].stop_reason)
        assert_still_right(running, "after")


def test_a_killed_engine_says_nothing_and_leaves_a_signal_as_status(tiny_model: Path) -> None:
    with Running(tiny_model, executor="null") as running:
        running.engine.signal(signal.SIGKILL)
        assert running.engine.wait() == -signal.SIGKILL
        with pytest.raises((TimeoutError, EngineDeadError)):
            running.frontend.recv_output(timeout_s=0.3)
