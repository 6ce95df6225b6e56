"""One engine process from outside: how it starts, is stopped at any moment, dies, and what it leaves."""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.codec import Dialect
from engine.time_slice import COMPUTING_SLICE_NS, SLICE_NS, shorten_time_slice, time_slice_ns
from tests.support.engine_process import EngineProcess, Running
from tests.support.frontend import RawFrontend
from tests.support.tiny_model import make_tiny_model
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
RANDOM_STOPS = 30
AT_ONCE = 4


def test_handshake_shows_the_effective_limits(tiny_model: Path) -> None:
    with Running(tiny_model, executor="null", num_gpu_blocks=8, max_model_len=2048) as running:
        ready = running.ready
        assert (ready.num_gpu_blocks, ready.block_size, ready.max_model_len) == (8, 16, 128)
        assert ready.kv_cache_size_tokens == 128 and ready.kv_cache_max_concurrency == 1.0
        assert ready.dtype == "bfloat16" and ready.vllm_version == "0.25.1" and ready.max_num_seqs == 64


def test_the_dialect_can_be_decided(tiny_model: Path) -> None:
    """Whatever a client shows of itself: nine elements are 0.32's outputs, eight 0.25's."""
    for decided, first_byte in (("0.32", 0x99), ("0.25", 0x98)):
        with Running(tiny_model, executor="null", dialect=decided) as running:
            for shown in (Dialect.V025, Dialect.V032):
                running.frontend.dialect = shown
                running.frontend.add(shown.value, [1, 2], max_tokens=1)
                assert running.frontend.recv_output()[0][0] == first_byte


def test_who_computes_has_a_short_slice_and_the_io_threads_a_shorter_one(tiny_model: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        is_possible = pool.submit(shorten_time_slice).result()
    with Running(tiny_model, kv_memory="16MiB", dtype="float32", kernels="native", threads=2) as running:
        running.frontend.add("a", [5, 6, 7], max_tokens=2)
        running.frontend.collect_all(["a"])
        found = {thread: time_slice_ns(thread) for thread in map(int, os.listdir(f"/proc/{running.engine.pid}/task"))}
    if is_possible:
        assert found[running.engine.pid] == COMPUTING_SLICE_NS
        assert set(found.values()) == {COMPUTING_SLICE_NS, SLICE_NS}
    else:
        assert set(found.values()) == {time_slice_ns()}


def test_a_real_model_generates(tiny_model: Path) -> None:
    with Running(tiny_model, kv_memory="16MiB", dtype="float32") as running:
        running.frontend.add("a", [5, 6, 7], max_tokens=8)
        running.frontend.add("b", [5, 6, 7], max_tokens=8)
        one, two = running.frontend.collect_all(["a", "b"])
        assert len(one.token_ids) == 8 and one.token_ids == two.token_ids and len(set(one.token_ids)) > 1


def test_a_remote_engine_says_so_and_a_local_one_too(tiny_model: Path, tmp_path: Path) -> None:
    for is_local in (False, True):
        with RawFrontend(is_local=is_local) as frontend:
            flags = ("--local-frontend",) if is_local else ()
            with EngineProcess(frontend, tiny_model, tmp_path / "log", flags=flags, executor="null"):
                frontend.wait_ready()


def test_a_frontend_that_ends_while_the_engine_loads_ends_the_start(tiny_model: Path, tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    frontend = RawFrontend()
    engine = EngineProcess(
        frontend, tiny_model, tmp_path / "log", executor="tests.support.executors:SlowLoadExecutor",
        env={"TEST_LOAD_S": "1"}, status_fd=write_fd, pass_fds=(write_fd,),
    )  # fmt: skip
    os.close(write_fd)
    with engine, os.fdopen(read_fd) as phases:
        frontend.take_status(60)
        frontend.send_init()
        next(line for line in phases if '"load weights"' in line)
        frontend.close()
        assert engine.wait(60) == 1
        assert "closed before this engine was ready" in engine.log and "Traceback" not in engine.log


@pytest.mark.fault
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_at_any_moment_of_the_start_ends_it(tmp_path: Path, number: signal.Signals) -> None:
    """Thirty random moments, every third of a start with torch; loading takes so long that READY is behind them all."""
    model = make_tiny_model(tmp_path / "model")
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    wrong: list[str] = []

    def work(runs: list[tuple[float, str]], name: int) -> None:
        for delay_s, executor in runs:
            with RawFrontend() as frontend:
                engine = EngineProcess(
                    frontend,
                    model,
                    tmp_path / f"log{name}",
                    executor=f"tests.support.{executor}",
                    env={"TEST_LOAD_S": "9"},
                )
                with engine:
                    wrong.extend(filter(None, [stop_once(frontend, engine, delay_s, number)]))

    light, heavy = (1.5, "executors:SlowLoadExecutor"), (3.0, "torch_executors:SlowLoadTorch")
    kinds = [(light, light, heavy)[place % 3] for place in range(RANDOM_STOPS)]
    runs = [(rng.uniform(0.0, most_s), executor) for most_s, executor in kinds]
    workers = [threading.Thread(target=work, args=(runs[i::AT_ONCE], i)) for i in range(AT_ONCE)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong, f"seed {seed}: {wrong}"


def stop_once(frontend: RawFrontend, engine: EngineProcess, delay_s: float, number: signal.Signals) -> str:
    """Empty when all was right. HELLO is answered if it comes before the signal does."""
    at = time.monotonic() + delay_s
    try:
        frontend.take_status(delay_s)
        frontend.send_init()
        frontend.take_status(max(0.0, at - time.monotonic()))
        return f"READY before {delay_s:.2f} s"
    except TimeoutError:
        engine.signal(number)
    began = time.monotonic()
    status = engine.wait(15)
    took = time.monotonic() - began
    return "" if took <= 5 and status != 0 else f"{number.name} at {delay_s:.2f} s: status {status} after {took:.1f} s"


def test_the_wait_for_init_ends_with_a_stop_signal(tiny_model: Path, tmp_path: Path) -> None:
    with RawFrontend() as frontend, EngineProcess(frontend, tiny_model, tmp_path / "log", executor="null") as engine:
        frontend.take_status()
        engine.signal(signal.SIGTERM)
        assert engine.wait(5) == 143


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_idle_ends_it_cleanly(tiny_model: Path, number: signal.Signals) -> None:
    with Running(tiny_model, executor="null") as running:
        running.engine.signal(number)
        running.frontend.wait_dead(5)
        assert running.engine.wait(5) == 0


def signal_another_thread(engine: EngineProcess, number: signal.Signals) -> None:
    """What the main thread is blocked in goes on undisturbed, as after a signal that comes just before it blocks."""
    others = sorted(int(name) for name in os.listdir(f"/proc/{engine.pid}/task") if int(name) != engine.pid)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.tgkill(engine.pid, others[0], int(number)) == 0, os.strerror(ctypes.get_errno())


def is_asleep(engine: EngineProcess) -> bool:
    return "State:\tS" in Path(f"/proc/{engine.pid}/status").read_text()


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_does_not_wake_the_main_thread_is_heard(tiny_model: Path, number: signal.Signals) -> None:
    with Running(tiny_model, executor="null") as running:
        running.frontend.add("a", [5, 6, 7], max_tokens=2)
        running.frontend.collect_all(["a"])
        wait_until(lambda: is_asleep(running.engine), what="the loop to sleep")
        signal_another_thread(running.engine, number)
        running.frontend.wait_dead(5)
        assert running.engine.wait(5) == 0


@pytest.mark.fault
def test_such_a_signal_ends_the_wait_for_init(tiny_model: Path, tmp_path: Path) -> None:
    with RawFrontend() as frontend, EngineProcess(frontend, tiny_model, tmp_path / "log", executor="null") as engine:
        frontend.take_status()
        wait_until(lambda: is_asleep(engine), what="the wait for INIT")
        signal_another_thread(engine, signal.SIGTERM)
        assert engine.wait(10) == 143


def read_lines(fd: int) -> list[dict[str, object]]:
    with os.fdopen(fd) as pipe:
        return [json.loads(line) for line in pipe]


def test_phases_travel_on_the_status_descriptor(tiny_model: Path, tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    with RawFrontend() as frontend:
        engine = EngineProcess(
            frontend, tiny_model, tmp_path / "log", executor="null", status_fd=write_fd, pass_fds=(write_fd,)
        )
        os.close(write_fd)
        with engine:
            frontend.wait_ready()
            engine.signal(signal.SIGTERM)
            engine.wait()
    lines = read_lines(read_fd)
    began = [line["phase"] for line in lines if line["event"] == "begin"]
    assert began == ["handshake", "load weights", "kv cache", "warm-up", "ready"]
    assert all(isinstance(line["t"], float) for line in lines)


def test_a_model_that_cannot_be_used_fails_with_the_phase_and_the_cause(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    (model / "config.json").write_text("{broken")
    read_fd, write_fd = os.pipe()
    with RawFrontend() as frontend:
        engine = EngineProcess(
            frontend, model, tmp_path / "log", executor="null", status_fd=write_fd, pass_fds=(write_fd,)
        )
        os.close(write_fd)
        with engine:
            frontend.take_status()
            frontend.send_init()
            assert engine.wait() == 1
            assert "config.json" in engine.log and "Traceback" not in engine.log
    failed = [line for line in read_lines(read_fd) if line["event"] == "failed"]
    assert len(failed) == 1 and failed[0]["phase"] == "load weights" and "config.json" in str(failed[0]["error"])


@pytest.mark.parametrize("words", [{"dtype": "float8"}, {"kv_memory": "much"}, {"block_size": "0"}])
def test_a_usage_error_exits_with_2(tiny_model: Path, tmp_path: Path, words: dict[str, object]) -> None:
    with RawFrontend() as frontend, EngineProcess(frontend, tiny_model, tmp_path / "log", **words) as engine:  # type: ignore[arg-type]
        assert engine.wait() == 2
        assert next(iter(words)).replace("_", "-").split("-")[0] in engine.log or "size" in engine.log


@pytest.mark.parametrize("is_loading", [False, True])
def test_it_ends_when_its_parent_is_gone(tiny_model: Path, tmp_path: Path, is_loading: bool) -> None:
    """The death pipe alone, as the library's launcher uses it: here the test is the parent and closes its end."""
    read_fd, write_fd = os.pipe()
    executor = "tests.support.executors:SlowLoadExecutor" if is_loading else "null"
    with RawFrontend() as frontend:
        engine = EngineProcess(
            frontend,
            tiny_model,
            tmp_path / "log",
            executor=executor,
            death_fd=read_fd,
            pass_fds=(read_fd,),
            env={"TEST_LOAD_S": "30"},
            orphan_grace=1,
        )
        os.close(read_fd)
        with engine:
            if is_loading:
                frontend.take_status()
                frontend.send_init()
                wait_until(lambda: "load weights ..." in engine.log, 20, "the load to begin")
            else:
                frontend.wait_ready()
            assert engine.is_alive()
            os.close(write_fd)
            engine.wait(8)


@pytest.mark.parametrize("executor", ["no.such.module:Executor", "json:JSONDecoder", "tests.support.executors:Missing"])
def test_an_executor_that_is_none_is_named(tiny_model: Path, tmp_path: Path, executor: str) -> None:
    with RawFrontend() as frontend, EngineProcess(frontend, tiny_model, tmp_path / "log", executor=executor) as engine:
        frontend.take_status()
        frontend.send_init()
        assert engine.wait() == 1
        assert executor in engine.log and "Traceback" not in engine.log


def test_stacks_are_dumped_on_a_signal(tiny_model: Path) -> None:
    with Running(tiny_model, executor="null") as running:
        running.frontend.call("ping")
        running.engine.signal(signal.SIGUSR2)
        wait_until(lambda: "run_busy_loop" in running.engine.log, 5, "stacks in the log")
        running.frontend.call("ping")
