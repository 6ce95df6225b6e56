"""SyncMPClient against real engines: what it gives, and that nobody waits for a dead one."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.client import (
    DeadlineError,
    EngineDeadError,
    FinishReason,
    RequestRefused,
    SamplingParams,
    SyncMPClient,
    UtilityError,
    new_request,
)
from engine.client.launcher import Launch
from engine.messages import EngineCoreOutput, EngineCoreRequest
from engine.reports import EngineDescription, EngineStats, RequestTable
from tests.engine.client.conftest import Configure
from tests.support.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("sockets")]
DEAD_WITHIN_S = 10.0


def request(name: str | None = None, max_tokens: int = 4) -> EngineCoreRequest:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    return new_request([1, 2, 3], params, request_id=name)


def tokens_of(outputs: Iterator[EngineCoreOutput]) -> list[int]:
    return [token for output in outputs for token in output.new_token_ids]


@pytest.fixture
def client(configure: Configure) -> Iterator[SyncMPClient]:
    with SyncMPClient(configure()) as made:
        yield made


@pytest.fixture
def slow(configure: Configure) -> Iterator[SyncMPClient]:
    with SyncMPClient(configure("Slow")) as made:
        yield made


# ---------------------------------------------------------------- what it gives


def test_either_layout_of_outputs_is_read(configure: Configure) -> None:
    with SyncMPClient(configure(dialect="0.32")) as client:
        outputs = list(client.stream(request("a", 5), timeout_s=20))
        assert sum(len(output.new_token_ids) for output in outputs) == 5
        first = next(output for output in outputs if output.prefill_stats is not None)
        assert first.prefill_stats is not None and first.prefill_stats.num_prompt_tokens > 0


def test_a_stream_ends_with_a_reason(client: SyncMPClient) -> None:
    outputs = list(client.stream(request("a", 5), timeout_s=20))
    assert sum(len(output.new_token_ids) for output in outputs) == 5
    assert [output.finish_reason for output in outputs if output.finished] == [FinishReason.LENGTH]
    assert {output.request_id for output in outputs} == {"a"}
    assert client.num_live == 0 and client.is_alive


def test_added_now_and_read_later(client: SyncMPClient) -> None:
    assert client.add(request("a", 3)) == "a"
    client.add(request("b", 2))
    assert len(tokens_of(client.stream("b", timeout_s=20))) == 2
    assert len(tokens_of(client.stream("a", timeout_s=20))) == 3
    with pytest.raises(RequestRefused, match="no request 'a'"):
        wait_until(lambda: client.stream("a") and False, 5.0)


def test_a_refusal_is_an_output_that_says_why(client: SyncMPClient) -> None:
    refused = new_request([], SamplingParams(max_tokens=1))
    (output,) = client.stream(refused, timeout_s=20)
    assert output.finish_reason == FinishReason.ERROR and "prompt" in str(output.stop_reason)


def test_calls_give_typed_results(client: SyncMPClient) -> None:
    described = client.call("describe", result_type=EngineDescription)
    assert described.pid == client.pid and described.ready == client.ready
    assert client.call("stats", result_type=EngineStats).phase == "running"
    assert client.call("get_supported_tasks") == ["generate"]
    with pytest.raises(UtilityError, match="no_such_method"):
        client.call("no_such_method")
    with pytest.raises(UtilityError, match="does not fit"):
        client.call("stats", result_type=int)
    with pytest.raises(TypeError):
        client.call("requests", object())


def test_many_threads_share_one_client(client: SyncMPClient) -> None:
    def work(number: int) -> tuple[int, object]:
        tokens = tokens_of(client.stream(request(f"t{number}", 10 + number), timeout_s=60))
        return len(tokens), client.call("is_sleeping", timeout_s=60)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(40))) == [(10 + number, False) for number in range(40)]
    assert client.num_live == 0


def test_abort_ends_a_stream_and_is_idempotent(slow: SyncMPClient) -> None:
    stream = slow.stream(request("hog", 1000), timeout_s=20)
    next(stream)
    slow.abort("hog")
    slow.abort(["hog", "unknown"])
    *_, last = stream
    assert last.finish_reason == FinishReason.ABORT
    slow.abort("hog")
    assert slow.call("requests", result_type=RequestTable).total == 0


def test_an_id_comes_back_at_once_after_an_abort(client: SyncMPClient) -> None:
    for _ in range(100):
        stream = client.stream(request("x", 50), timeout_s=20)
        stream.close()
        with pytest.raises(RequestRefused, match="no request"):
            client.stream("x")
        *_, last = client.stream(request("x", 3), timeout_s=20)
        assert last.finish_reason == FinishReason.LENGTH


def test_a_stream_that_is_closed_elsewhere_frees_its_reader(slow: SyncMPClient) -> None:
    slow.call("pause_scheduler", "keep")
    stream = slow.stream(request("x"))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(tokens_of, stream)
        wait_until(lambda: slow.call("requests", result_type=RequestTable).total == 1, 5.0, "it waits")
        stream.close()
        assert reading.result(10) == []
    with pytest.raises(StopIteration):
        next(stream)


def test_a_live_id_is_refused(slow: SyncMPClient) -> None:
    slow.add(request("x", 1000))
    with pytest.raises(RequestRefused, match="in use"):
        slow.add(request("x"))


def test_a_stream_that_nobody_holds_is_aborted(slow: SyncMPClient) -> None:
    for output in slow.stream(request("left", 1000)):
        assert output.new_token_ids
        break
    gc.collect()
    wait_until(lambda: slow.call("requests", result_type=RequestTable).total == 0, 5.0, "the request is gone")
    assert slow.num_live == 0


def test_a_deadline_passes_and_the_stream_may_be_read_on(slow: SyncMPClient) -> None:
    slow.call("pause_scheduler", "keep")
    stream = slow.stream(request("x", 2), timeout_s=0.2)
    with pytest.raises(DeadlineError, match=r"x: no output within 0.2 s"):
        next(stream)
    slow.call("resume_scheduler")
    patient = slow.stream("x", timeout_s=20)
    assert len(tokens_of(patient)) == 2


def test_the_answer_of_a_call_that_timed_out_is_discarded(slow: SyncMPClient) -> None:
    slow.add(request("running", 1000))
    with pytest.raises(DeadlineError, match="ping"):
        slow.call("ping", timeout_s=0.0)
    first = slow.call("ping", result_type=dict[str, int])
    assert slow.call("ping", result_type=dict[str, int])["loop_counter"] >= first["loop_counter"]


# ---------------------------------------------------------------- its end


def test_shutdown_lets_requests_finish(slow: SyncMPClient) -> None:
    slow.add(request("x", 20))
    slow.shutdown(timeout_s=20)
    *_, last = slow.stream("x")
    assert last.finish_reason == FinishReason.LENGTH
    slow.shutdown()
    slow.close()


def test_shutdown_aborts_what_takes_too_long(slow: SyncMPClient) -> None:
    slow.add(request("x", 1000))
    slow.shutdown(timeout_s=0.3)
    *_, last = slow.stream("x")
    assert last.finish_reason == FinishReason.ABORT
    with pytest.raises(EngineDeadError):
        slow.add(request())


@pytest.mark.parametrize("action", ["stream", "call", "shutdown"])
def test_a_kill_frees_who_waits(slow: SyncMPClient, action: str) -> None:
    actions: dict[str, Callable[[], object]] = {
        "stream": lambda: tokens_of(slow.stream(request("x", 1500))),
        "call": lambda: slow.call("pause_scheduler", "wait", timeout_s=60),
        "shutdown": lambda: slow.shutdown(timeout_s=60),
    }
    slow.add(request("running", 1500))
    with ThreadPoolExecutor(1) as pool:
        # A pause that finds nothing begun has nothing to wait for.
        wait_until(lambda: slow.call("stats", result_type=EngineStats).step_counter > 3, 10.0, "steps")
        waiting = pool.submit(actions[action])
        wait_until(waiting.running, 5.0)
        slow.call("stats")
        os.kill(slow.pid, signal.SIGKILL)
        with pytest.raises(EngineDeadError):
            waiting.result(DEAD_WITHIN_S)


def test_nobody_comes_to_a_dead_engine(slow: SyncMPClient) -> None:
    slow.add(request("x", 1000))
    os.kill(slow.pid, signal.SIGKILL)
    wait_until(lambda: not slow.is_alive, DEAD_WITHIN_S, "the death is known")
    attempts: list[Callable[[], object]] = [
        lambda: slow.add(request()),
        lambda: slow.stream(request()),
        lambda: slow.abort("x"),
        lambda: slow.call("ping"),
        lambda: tokens_of(slow.stream("x")),
        slow.shutdown,
    ]
    for attempt in attempts:
        with pytest.raises(EngineDeadError, match="was killed by SIGKILL"):
            attempt()
    assert not psutil.pid_exists(slow.pid)


def test_the_cause_of_a_death_by_exception_is_told(configure: Configure) -> None:
    with SyncMPClient(configure("Breaks")) as client, pytest.raises(EngineDeadError, match="the third step breaks"):
        tokens_of(client.stream(request("x", 100), timeout_s=20))


@pytest.mark.parametrize("launch", ["command", "process"])
def test_a_stopped_engine_is_closed_and_nothing_is_left(configure: Configure, sockets: Path, launch: Launch) -> None:
    client = SyncMPClient(configure("Slow"), launch=launch)
    pid = client.pid
    client.add(request("x", 1000))
    os.kill(pid, signal.SIGSTOP)
    for number in range(1000):
        client.add(request(f"unread-{number}"))
    closer = threading.Thread(target=client.close)
    closer.start()
    closer.join(3.0)
    assert not closer.is_alive()
    assert not psutil.pid_exists(pid) and list(sockets.iterdir()) == []


def test_a_client_that_nobody_holds_ends_its_engine(configure: Configure) -> None:
    client = SyncMPClient(configure())
    pid = client.pid
    del client
    gc.collect()
    wait_until(lambda: not psutil.pid_exists(pid), 5.0, "the engine is gone")


# ---------------------------------------------------------------- other programs

BUSY_PROGRAM = """
import sys, threading, torch
from engine.client import EngineConfig, SamplingParams, SyncMPClient, new_request

def spin(stop):
    while not stop.wait(0.001):
        torch.ones(8, 8) @ torch.ones(8, 8)

if __name__ == "__main__":
    stop = threading.Event()
    threads = [threading.Thread(target=spin, args=(stop,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        config = EngineConfig(model=sys.argv[1], executor="null", num_gpu_blocks=64)
        client = SyncMPClient(config, launch=sys.argv[2])
        outputs = list(client.stream(new_request([1, 2], SamplingParams(max_tokens=3)), timeout_s=30))
        print(client.pid, sum(len(output.new_token_ids) for output in outputs), flush=True)
        if sys.argv[3] == "die":
            import os
            os.kill(os.getpid(), 9)
        # "leave": the program ends without closing its client
    finally:
        stop.set()
"""


@pytest.mark.parametrize(("launch", "end"), [("command", "die"), ("process", "leave")])
def test_a_program_with_torch_and_threads(tmp_path: Path, tiny_model: Path, launch: str, end: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(BUSY_PROGRAM)
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run(
        [sys.executable, str(program), str(tiny_model), launch, end],
        capture_output=True, text=True, timeout=90, check=False, env=environment,
    )  # fmt: skip
    assert run.returncode == (0 if end == "leave" else -9), run.stderr
    pid, tokens = map(int, run.stdout.split())
    assert tokens == 3
    wait_until(lambda: not psutil.pid_exists(pid), 20.0, "the engine is gone with its program")
    if end == "leave":
        assert list(tmp_path.glob("engine-*")) == []


def test_raw_results_survive_later_messages(client: SyncMPClient) -> None:
    first = client.call("describe", result_type=msgspec.Raw)
    for _ in range(50):
        client.call("stats")
    assert msgspec.msgpack.decode(first, type=EngineDescription).pid == client.pid


def test_every_live_request_ends_with_an_output_when_the_engine_is_shut_down(configure: Configure) -> None:
    with SyncMPClient(configure("Slow", max_num_seqs=8)) as client:
        for number in range(16):
            client.add(request(f"r{number}", 1000))
        wait_until(lambda: client.call("stats", result_type=EngineStats).running == 8, 10.0, "eight run")
        client.shutdown()
        for number in range(16):
            *_, last = client.stream(f"r{number}")
            assert last.finish_reason == FinishReason.ABORT


def test_a_fork_of_the_program_leaves_the_engine_alone(client: SyncMPClient) -> None:
    child = os.fork()
    if child == 0:
        try:
            client.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert len(tokens_of(client.stream(request("x", 3), timeout_s=20))) == 3
