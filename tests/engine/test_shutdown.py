"""Shutdowns of a real engine process by either signal: drain, its deadline, refusals, and one final output for each."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine.messages import FinishReason
from tests.support.engine_process import ROOT, Running, engine_environment
from tests.support.frontend import Generation, RawFrontend

pytestmark = [pytest.mark.e2e, pytest.mark.fault]
PROMPT = [5, 6, 7, 8]
BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


def start(model: Path, step_s: float = 0.02, **options: Any) -> Running:
    executor = "tests.support.executors:SlowExecutor"
    return Running(model, executor=executor, env={"TEST_STEP_S": str(step_s)}, max_num_seqs=8, **options)


def finals(generations: list[Generation]) -> Counter[str]:
    assert [one.request_id for one in generations if one.num_finals != 1] == []
    return Counter(str(one.finish_reason) for one in generations)


@BOTH
def test_a_signal_drains_and_refuses_what_is_new(tiny_model: Path, number: signal.Signals) -> None:
    with start(tiny_model, flags=("--shutdown-timeout", "60")) as running:
        frontend = running.frontend
        old = [frontend.add(f"old{place}", PROMPT, max_tokens=60) for place in range(12)]
        frontend.pump(lambda: any(one.token_ids for one in old))
        running.engine.signal(number)
        frontend.pump(lambda: frontend.call("stats")["phase"] == "draining")  # type: ignore[index]
        late = frontend.add("late", PROMPT)
        ask = frontend.ask("pause_scheduler")
        frontend.wait_dead(20)
        assert finals([late]) == {"abort": 1}
        assert frontend.answer(ask).failure_message == "Server shutting down"
        assert finals(old) == {"length": 12} and all(len(one.token_ids) == 60 for one in old)
        assert running.engine.wait() == 0


@BOTH
def test_the_deadline_of_a_drain_by_signal_is_kept_by_the_engine(tiny_model: Path, number: signal.Signals) -> None:
    with start(tiny_model, flags=("--shutdown-timeout", "0.5")) as running:
        found = [running.frontend.add(f"r{place}", PROMPT, max_tokens=1900) for place in range(12)]
        running.frontend.pump(lambda: any(one.token_ids for one in found))
        running.engine.signal(number)
        running.frontend.wait_dead(10)
        assert finals(found) == {"abort": 12}
        assert "drain deadline reached with 12 requests left" in running.engine.log
        assert running.engine.wait() == 0


@pytest.mark.parametrize("waiting", [0, 2])
def test_a_drain_wakes_a_sleeping_engine_only_for_requests_and_aborts_them_when_it_cannot(
    tiny_model: Path, waiting: int
) -> None:
    options = {"executor": "tests.support.saboteurs:SleepyExecutor", "flags": ("--shutdown-timeout", "60")}
    with Running(tiny_model, **options) as running:
        running.frontend.call("sleep", 2, "abort")
        found = [running.frontend.add(f"r{place}", PROMPT) for place in range(waiting)]
        running.frontend.call("ping")
        running.engine.signal(signal.SIGTERM)
        running.frontend.wait_dead(10)
        assert finals(found) == ({"abort": waiting} if waiting else {})
        assert ("woken" in running.engine.log) == (waiting > 0)
        assert ("cannot wake up to finish its requests" in running.engine.log) == (waiting > 0)
        assert running.engine.wait() == 0


def test_one_final_output_whoever_ends_it(tiny_model: Path) -> None:
    """Length, client, operator, refusal, a pause, both signals: all at once and in each other's way."""
    with start(tiny_model, num_clients=2) as running:
        frontend = running.frontend
        found = [
            frontend.add(f"r{place}", PROMPT, max_tokens=1 + place % 5 * 40, client=place % 2) for place in range(60)
        ]
        found += [frontend.add(f"bad{place}", [], client=place % 2) for place in range(5)]
        frontend.pump(lambda: sum(one.is_finished for one in found) > 10)
        frontend.abort([f"r{place}" for place in range(0, 60, 6)], client=1)
        frontend.ask("abort_requests", [f"r{place}" for place in range(0, 60, 4)], True)
        frontend.abort([f"r{place}" for place in range(0, 60, 3)])
        frontend.ask("pause_scheduler", "wait", False)
        frontend.abort([f"r{place}" for place in range(0, 60, 5)])
        running.engine.signal(signal.SIGTERM)
        running.engine.signal(signal.SIGINT)
        frontend.wait_dead(10)
        counts = finals(found)
        assert counts["length"] > 0 and counts["abort"] > 0 and counts["error"] > 5 and counts.total() == 65
        assert running.engine.wait() == 0


def test_waiting_and_running_of_all_clients_are_told_when_the_engine_is_asked_to_abort(tiny_model: Path) -> None:
    with start(tiny_model, num_clients=3) as running:
        found = [running.frontend.add(f"r{place}", PROMPT, max_tokens=500, client=place % 3) for place in range(30)]
        running.frontend.pump(lambda: sum(bool(one.token_ids) for one in found) == 8)
        running.engine.signal(signal.SIGINT)
        running.frontend.wait_dead(10)
        assert finals(found) == {"abort": 30}
        assert {one.finish_reason for one in found} == {FinishReason.ABORT}


IN_A_PROCESS = """
import signal, sys
from engine.config import EngineConfig
from engine.run import Launch, run_engine_core

def mine(number, frame): pass

signal.signal(signal.SIGTERM, mine)
before = signal.getsignal(signal.SIGINT)
try:
    run_engine_core(EngineConfig(model=sys.argv[2], executor=sys.argv[3]), Launch(sys.argv[1]))
except SystemExit as end:
    print("status", end.code, flush=True)
print("restored", signal.getsignal(signal.SIGTERM) is mine, signal.getsignal(signal.SIGINT) is before, flush=True)
"""


@pytest.mark.parametrize(("executor", "status"), [("SocketGuard", 0), ("DyingExecutor", 1), ("LoadFailure", 1)])
def test_every_end_restores_the_signals_and_shuts_the_executor_down(
    tiny_model: Path, executor: str, status: int
) -> None:
    """A clean end, a death in the loop, a start that fails: seen by the program that called run_engine_core."""
    with RawFrontend() as frontend:
        program = subprocess.Popen(
            [sys.executable, "-c", IN_A_PROCESS, frontend.handshake_address, str(tiny_model), saboteur(executor)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=engine_environment(TEST_STEP_S="0"),
        )
        try:
            if executor == "LoadFailure":
                frontend.take_status()
                frontend.send_init()
            else:
                frontend.wait_ready()
                frontend.add("poison", PROMPT, max_tokens=1)
                frontend.ask("shutdown", 5.0)
                frontend.wait_dead(10)
            said = program.communicate(timeout=20)[0]
        finally:
            program.kill()
            program.wait()
    assert f"status {status}\n" in said and "restored True True" in said, said
    assert ("sockets were used" if executor == "SocketGuard" else "the executor was shut down") in said, said


def saboteur(name: str) -> str:
    return f"tests.support.saboteurs:{name}"
