"""The supervisor between a bare frontend and a real engine: frames untouched, everybody's requests operated."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from engine import codec
from engine.codec import Dialect
from engine.messages import AbortIds, EngineCoreOutput, FinishReason, SamplingParams
from enginectl.errors import CtlError
from tests.support.frontend import Generation, RawFrontend
from tests.support.joined import joined
from tests.support.rig import Rig
from tests.support.wait import wait_until

PROMPT = [3, 4, 5, 6]


def alone(rig: Rig, tokens: int, **sampling: object) -> list[int]:
    """What the engine gives without a frontend."""
    engine = rig.start("alone")
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True, **sampling})  # type: ignore[arg-type]
    ids = [token for chunk in engine.generate(PROMPT, params) for token in chunk.token_ids]
    engine.stop()
    return ids


def begin(frontend: RawFrontend, request_id: str, tokens: int = 1500, **options: object) -> Generation:
    """A request that has given a token."""
    generation = frontend.add(request_id, PROMPT, max_tokens=tokens, ignore_eos=True, **options)  # type: ignore[arg-type]
    frontend.pump(lambda: bool(generation.token_ids), what=f"a token of {request_id}")
    return generation


@pytest.mark.parametrize("dialect", [Dialect.V025, Dialect.V032])
def test_two_clients_and_our_own_seat_get_the_same_tokens(rig: Rig, dialect: Dialect) -> None:
    expected = alone(rig, 12)
    with RawFrontend(num_clients=2, dialect=dialect) as frontend:
        engine = joined(rig, frontend)
        for client in (0, 1):
            frontend.add(f"r{client}", PROMPT, client=client, max_tokens=12, ignore_eos=True)
        own = [t for chunk in engine.generate(PROMPT, _greedy(12)) for t in chunk.token_ids]
        for generation in frontend.collect_all(["r0", "r1"]):
            assert generation.token_ids == expected and generation.finish_reason == FinishReason.LENGTH
            assert generation.num_finals == 1
        assert own == expected
        assert all(response.block_size == 16 for response in frontend.ready_responses.values())
        assert frontend.call("is_sleeping", client=1) is False
        assert frontend.call("reset_prefix_cache", False, False) is True
        with pytest.raises(RuntimeError, match="no_such"):
            frontend.call("no_such_method")


def _greedy(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)


def test_a_hang_up_leaves_the_engine_and_the_table(rig: Rig) -> None:
    with RawFrontend() as frontend:
        engine = joined(rig, frontend)
        begin(frontend, "cmpl-abc-0-8a1f0945")
        wait_until(lambda: [view.external_id for view in engine.requests()] == ["cmpl-abc-0-8a1f0945"], 5.0, "seen")
        frontend.abort(["cmpl-abc-0-8a1f0945"])
        wait_until(lambda: not engine.requests() and engine.status().state == "idle", 5.0, "idle")


def test_an_operators_abort_is_an_error_for_its_client_alone(rig: Rig) -> None:
    with RawFrontend(num_clients=2) as frontend:
        engine = joined(rig, frontend, env={"PACED_STEP_MS": "20"})
        victim = begin(frontend, "victim")
        other = begin(frontend, "other", tokens=60, client=1)
        began = time.monotonic()
        outcomes = engine.abort("victim")
        frontend.collect("victim", 5.0)
        assert time.monotonic() - began < 5.0
        assert [item.result for item in outcomes] == ["aborted"]
        assert victim.finish_reason == FinishReason.ERROR and victim.stop_reason == "aborted by operator"
        frontend.collect("other")
        assert other.finish_reason == FinishReason.LENGTH and len(other.token_ids) == 60


def test_cordoned_and_draining_refuse_with_an_error(rig: Rig) -> None:
    with RawFrontend() as frontend:
        engine = joined(rig, frontend, env={"PACED_STEP_MS": "20"})
        running = begin(frontend, "running", tokens=40)
        engine.cordon()
        refused = frontend.add("late", PROMPT)
        frontend.collect("late")
        assert refused.finish_reason == FinishReason.ERROR and "cordoned" in str(refused.stop_reason)
        frontend.collect("running")
        assert running.finish_reason == FinishReason.LENGTH
        engine.uncordon()
        frontend.add("again", PROMPT, max_tokens=3, ignore_eos=True)
        assert frontend.collect("again").finish_reason == FinishReason.LENGTH
        end = engine.drain(30.0)
        assert end is not None and end.drained
        frontend.wait_dead(10.0)


def test_an_id_in_flight_is_refused_to_everybody_else(rig: Rig) -> None:
    with RawFrontend(num_clients=2) as frontend:

        def finals(client: int) -> list[EngineCoreOutput]:
            outputs = [output for seat, message in frontend.messages if seat == client for output in message.outputs]
            return [output for output in outputs if output.finish_reason is not None]

        engine = joined(rig, frontend, env={"PACED_STEP_MS": "20"})
        begin(frontend, "same", tokens=60)
        frontend.add("same", PROMPT, client=1, max_tokens=3, ignore_eos=True)
        frontend.pump(lambda: bool(finals(1)), what="a refusal")
        assert [(view.id, view.client) for view in engine.requests()] == [("same", 0)]
        frontend.pump(lambda: bool(finals(0)), what="the end of the first")
        assert [output.finish_reason for output in finals(0)] == [FinishReason.LENGTH]
        assert [output.finish_reason for output in finals(1)] == [FinishReason.ERROR]
        assert finals(1)[0].stop_reason == "same is in flight already, of client 0"
        again = frontend.add("same", PROMPT, client=1, max_tokens=3, ignore_eos=True)
        frontend.collect("same")
        assert again.finish_reason == FinishReason.LENGTH and len(again.token_ids) == 3


def test_an_id_that_its_client_let_go_of_may_be_taken_again(rig: Rig) -> None:
    with RawFrontend() as frontend:
        engine = joined(rig, frontend, env={"PACED_STEP_MS": "20"})
        begin(frontend, "same")
        frontend.abort(["same"])
        again = frontend.add("same", PROMPT, max_tokens=3, ignore_eos=True)
        frontend.pump(lambda: len(again.token_ids) >= 3, what="tokens of the second")
        wait_until(lambda: not engine.requests() and engine.status().state == "idle", 5.0, "idle")


def test_a_silent_death_is_told_when_nobody_replaces_the_engine(rig: Rig) -> None:
    with RawFrontend(num_clients=2) as frontend:
        engine = joined(rig, frontend)
        begin(frontend, "a", client=1)
        process = engine.status().process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        frontend.wait_dead(10.0)
    wait_until(lambda: rig.entry().liveness == "dead", 10.0, "a post-mortem")


def test_a_killed_supervisor_is_told_by_its_watchman(rig: Rig) -> None:
    with RawFrontend(num_clients=2) as frontend:
        engine = joined(rig, frontend)
        begin(frontend, "a")
        supervisor = engine.status().supervisor
        assert supervisor is not None
        os.kill(supervisor.pid, signal.SIGKILL)
        frontend.wait_dead(10.0)


def test_without_hold_a_restart_fails_what_runs_and_serves_again(rig: Rig) -> None:
    with RawFrontend() as frontend:
        engine = joined(rig, frontend, restart="on-failure")
        lost = begin(frontend, "lost")
        process = engine.status().process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        frontend.collect("lost")
        assert lost.finish_reason == FinishReason.ERROR and "signal 9 KILL" in str(lost.stop_reason)
        between = frontend.add("between", PROMPT)
        frontend.collect("between")
        assert between.finish_reason == FinishReason.ERROR
        wait_until(lambda: engine.status().restarts == 1 and engine.status().state == "idle", 30.0, "serving again")
        frontend.add("after", PROMPT, max_tokens=3, ignore_eos=True)
        assert frontend.collect("after").finish_reason == FinishReason.LENGTH
        assert not frontend.dead_clients


def test_frames_pass_both_legs_unchanged(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the engine's input thread got and its output thread sent, by the executor's own record of its sockets."""
    record = tmp_path / "frames"
    monkeypatch.setenv("RECORD_FRAMES", str(record))
    with RawFrontend(num_clients=2, dialect=Dialect.V032) as frontend:
        joined(rig, frontend, env={"RECORD_FRAMES": str(record)}, executor="tests.support.recording:RecordingExecutor")
        sent: list[list[bytes]] = []
        original = frontend.send_frames

        def noting(frames: object, client: int = 0) -> None:
            sent.append([bytes(frame) for frame in frames])  # type: ignore[attr-defined]
            original(frames, client)  # type: ignore[arg-type]

        monkeypatch.setattr(frontend, "send_frames", noting)
        taken: list[list[bytes]] = []
        take = frontend._take
        monkeypatch.setattr(frontend, "_take", lambda frames, client: (taken.append(frames), take(frames, client)))
        for client in (0, 1):
            frontend.add(f"g{client}", PROMPT, client=client, max_tokens=5, logprobs=3, prompt_logprobs=2)
            frontend.add(f"s{client}", PROMPT * 30, client=client, max_tokens=3, temperature=0.9, seed=4)
        frontend.collect_all(["g0", "g1", "s0", "s1"])
        frontend.call("is_sleeping", client=1)
        frontend.send_frames(codec.encode_request(AbortIds(["nobody"])), 1)
        frontend.send_frames([b"\x03", msgspec.msgpack.encode([0, 77, "no_such", []])], 0)
        frontend.expect_answer(77)
        frontend.answer(77)

        def seen(way: str) -> list[list[bytes]]:
            lines = [msgspec.json.decode(line) for line in record.read_text().splitlines()]
            return [[bytes.fromhex(frame) for frame in line["frames"]] for line in lines if line["way"] == way]

        wait_until(lambda: all(frames in seen("in") for frames in sent), 10.0, "all requests at the engine")
        out = seen("out")
        assert taken and all(frames in out for frames in taken)


def test_what_the_supervisor_shows_of_a_frontend(rig: Rig) -> None:
    with RawFrontend(num_clients=2) as frontend:
        engine = joined(rig, frontend)
        assert "2 clients" in engine.status().frontend
        with pytest.raises(CtlError):
            engine.abort(["x"] * 20_000)
