"""Clients that wait while their engine is replaced: what had not begun is replayed, what had is resumed."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from engine.messages import FinishReason, SamplingParams
from enginectl.client import Engine, connect
from enginectl.control import EngineView
from enginectl.control_explain import ExplainArgs, ExplanationList
from enginectl.control_verbs import RestartArgs
from enginectl.settings import EngineSettings
from tests.support.frontend import RawFrontend
from tests.support.joined import join_settings, joined
from tests.support.rig import Rig
from tests.support.wait import wait_until

PROMPT = [3, 4, 5, 6]
TOKENS = 60
SLOW = {"PACED_STEP_MS": "20"}


def undisturbed(rig: Rig, **sampling: object) -> list[int]:
    engine = rig.start("alone")
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": TOKENS, "ignore_eos": True, **sampling})  # type: ignore[arg-type]
    ids = [token for chunk in engine.generate(PROMPT, params) for token in chunk.token_ids]
    engine.stop()
    return ids


def ask(frontend: RawFrontend, count: int, **sampling: object) -> list[str]:
    names = [f"r{number}" for number in range(count)]
    for name in names:
        frontend.add(name, PROMPT, max_tokens=TOKENS, ignore_eos=True, **sampling)  # type: ignore[arg-type]
    return names


def begun(frontend: RawFrontend, count: int) -> bool:
    return sum(len(generation.token_ids) > 3 for generation in frontend.generations.values()) >= count


def kill(engine: Engine) -> None:
    process = engine.status().process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)


def restart(name: str, **options: object) -> EngineView:
    with connect(name) as engine:
        stream = engine.control.stream("restart", RestartArgs(**options), EngineView, EngineView)  # type: ignore[arg-type]
        list(stream)
        assert stream.end is not None
        return stream.end


def test_a_crash_under_hold_is_a_pause(rig: Rig) -> None:
    """Four that run, four that wait for a place, and one that comes while no engine is there."""
    expected = undisturbed(rig)
    with RawFrontend() as frontend:
        engine = joined(rig, frontend, hold=True, restart="on-failure", env=SLOW, max_num_seqs=4)
        names = ask(frontend, 8)
        frontend.pump(lambda: begun(frontend, 4), what="four running")
        kill(engine)
        wait_until(lambda: engine.status().held == 8, 10.0, "held")
        assert "holding 8" in engine.status().reason
        assert sorted((view.external_id or view.id, view.state) for view in engine.requests()) == [
            (name, "held") for name in names
        ]
        (told,) = engine.control.request("explain", ExplainArgs(id="r0"), ExplanationList).items
        assert (told.request.state, told.because) == ("held", "the engine is replaced; its client waits")
        frontend.add("late", PROMPT, max_tokens=TOKENS, ignore_eos=True)
        call = frontend.ask("is_sleeping")
        for generation in frontend.collect_all([*names, "late"], 90.0):
            assert generation.finish_reason == FinishReason.LENGTH, generation.stop_reason
            assert generation.num_finals == 1
            assert generation.token_ids == expected
        assert frontend.answer(call).failure_message is None
        assert engine.status().held_s is None and engine.status().restarts == 1


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.9, "seed": 11}, {"temperature": 0.9, "seed": 11, "top_p": 0.7}]
)
def test_restart_with_hold_fails_nobody(rig: Rig, sampling: dict[str, object]) -> None:
    expected = undisturbed(rig, **sampling)
    with RawFrontend() as frontend:
        joined(rig, frontend, env=SLOW)
        names = ask(frontend, 3, **sampling)
        frontend.pump(lambda: begun(frontend, 3), what="three running")
        worker = threading.Thread(target=restart, args=("t",), kwargs={"hold": True})
        worker.start()
        for generation in frontend.collect_all(names, 90.0):
            assert generation.finish_reason == FinishReason.LENGTH
            assert generation.token_ids == expected
        worker.join(60.0)
        assert not worker.is_alive() and not frontend.dead_clients


def test_our_own_callers_are_held_too(rig: Rig) -> None:
    expected = undisturbed(rig)
    settings = rig.settings("t", env=SLOW, restart="on-failure")
    settings.hold = True
    rig.launch(settings)
    engine = connect("t")
    rig.await_ready(engine)
    found: list[int] = []

    def run() -> None:
        with connect("t") as mine:
            params = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
            for chunk in mine.generate(PROMPT, params):
                found.extend(chunk.token_ids)

    worker = threading.Thread(target=run)
    worker.start()
    wait_until(lambda: len(found) > 5, 20.0, "some tokens")
    kill(engine)
    worker.join(60.0)
    assert found == expected


def test_past_the_limit_they_get_errors(rig: Rig) -> None:
    with RawFrontend() as frontend:
        settings = join_settings(rig, frontend.handshake_address, restart="on-failure", env=SLOW)
        settings.hold, settings.hold_limit_s = True, 1.0
        engine = _start(rig, settings, frontend)
        names = ask(frontend, 2)
        frontend.pump(lambda: begun(frontend, 2), what="running")
        kill(engine)
        for generation in frontend.collect_all(names, 20.0):
            assert generation.finish_reason == FinishReason.ERROR and "not back within 1 s" in str(
                generation.stop_reason
            )
        wait_until(lambda: engine.status().state == "idle", 40.0, "serving again")
        frontend.add("after", PROMPT, max_tokens=3, ignore_eos=True)
        assert frontend.collect("after").finish_reason == FinishReason.LENGTH


def _start(rig: Rig, settings: EngineSettings, frontend: RawFrontend) -> Engine:
    rig.launch(settings)
    engine = connect("t")
    frontend.wait_ready(60.0)
    rig.await_ready(engine)
    return engine


def test_sampled_requests_fail_at_once_where_that_was_asked_for(rig: Rig) -> None:
    """Before there is a successor: there is nothing that they would wait for."""
    with RawFrontend() as frontend:
        slow = {**SLOW, "PACED_LOAD_S": "3"}
        settings = join_settings(rig, frontend.handshake_address, restart="on-failure", env=slow)
        settings.hold, settings.hold_sampled = True, "fail"
        engine = _start(rig, settings, frontend)
        frontend.add("sampled", PROMPT, max_tokens=TOKENS, ignore_eos=True, temperature=0.7)
        frontend.add("greedy", PROMPT, max_tokens=TOKENS, ignore_eos=True)
        frontend.pump(lambda: begun(frontend, 2), what="running")
        kill(engine)
        sampled = frontend.collect("sampled", 60.0)
        assert engine.status().held == 1
        assert frontend.collect("greedy", 60.0).finish_reason == FinishReason.LENGTH
        assert sampled.finish_reason == FinishReason.ERROR and "it is sampled" in str(sampled.stop_reason)


def test_who_hangs_up_or_is_aborted_while_held_is_forgotten(rig: Rig) -> None:
    with RawFrontend() as frontend:
        engine = joined(rig, frontend, hold=True, restart="on-failure", env={**SLOW, "PACED_LOAD_S": "3"})
        ask(frontend, 3)
        frontend.pump(lambda: begun(frontend, 3), what="running")
        kill(engine)
        wait_until(lambda: engine.status().held == 3, 10.0, "held")
        frontend.abort(["r0"])
        wait_until(lambda: engine.status().held == 2, 10.0, "one less")
        assert [outcome.result for outcome in engine.abort("r1")] == ["aborted"]
        assert frontend.collect("r1").finish_reason == FinishReason.ERROR
        assert frontend.collect("r2", 60.0).finish_reason == FinishReason.LENGTH
        assert not frontend.generations["r0"].is_finished
