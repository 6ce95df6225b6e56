"""A foreign engine of several guarded processes, and a whole command split in two, with a stand-in for the peer."""

from __future__ import annotations

import http.client
import os
import signal
import socket
from pathlib import Path

import pytest

from engine.messages import FinishReason, SamplingParams
from enginectl.client import Engine, connect
from enginectl.errors import CallFailed, GenerationFailed
from enginectl.identity import read_stat, session_members
from enginectl.settings import EngineSettings
from tests.support.frontend import RawFrontend
from tests.support.rig import REPOSITORY, Rig
from tests.support.wait import wait_until

PEER = Path(__file__).parents[2] / "support" / "fake_peer"
PROMPT = [3, 4, 5, 6]


def foreign(rig: Rig, *args: str, restart: str = "no", step_ms: str = "5") -> EngineSettings:
    settings = rig.settings("t", restart=restart)
    settings.engine = "vllm"
    settings.config = {"model": str(rig.model), "max_num_seqs": 4}
    settings.engine_args = list(args)
    settings.env |= {"PYTHONPATH": f"{PEER}:{REPOSITORY}", "PACED_STEP_MS": step_ms}
    return settings


def started(rig: Rig, settings: EngineSettings) -> Engine:
    rig.launch(settings)
    engine = connect("t")
    rig.await_ready(engine)
    return engine


def group(rig: Rig) -> list[int]:
    record = rig.entry().record
    assert record is not None and record.engine is not None
    return session_members(record.engine.pid)


def are_gone(pids: list[int]) -> bool:
    return not any((stat := read_stat(pid)) is not None and stat.state not in "ZX" for pid in pids)


def generate(engine: Engine, tokens: int) -> list[int]:
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    return [token for chunk in engine.generate(PROMPT, params) for token in chunk.token_ids]


def test_it_serves_and_stops_with_its_whole_group(rig: Rig) -> None:
    engine = started(rig, foreign(rig))
    view = engine.status()
    assert [phase.name for phase in view.phases] == ["spawn", "handshake", "loading"]
    pids = group(rig)
    assert view.process is not None and len(pids) == 3 and view.process.pid in pids[1:]
    assert len(generate(engine, 9)) == 9
    assert engine.call("is_sleeping") is False
    with pytest.raises(CallFailed, match="no_such"):
        engine.call("no_such")
    engine.stop()
    assert are_gone(pids)


def test_its_dialect_can_be_decided(rig: Rig) -> None:
    """A version that tells nothing, or something else than it speaks."""
    settings = rig.settings("t", dialect="0.32")
    assert len(generate(started(rig, settings), 5)) == 5


def test_an_abort_is_told_by_us(rig: Rig) -> None:
    engine = started(rig, foreign(rig, step_ms="30"))
    stream = engine.generate(PROMPT, SamplingParams(max_tokens=500, ignore_eos=True), request_id="victim")
    next(stream)
    with connect("t") as other:
        assert [outcome.result for outcome in other.abort("victim")] == ["aborted"]
    with pytest.raises(GenerationFailed, match="aborted by operator"):
        list(stream)


def test_a_core_that_is_stopped_is_a_stall(rig: Rig) -> None:
    engine = started(rig, foreign(rig, step_ms="20"))
    stream = engine.generate(PROMPT, SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True))
    found, process = list(next(stream).token_ids), engine.status().process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    with connect("t") as other:
        wait_until(lambda: other.status().state == "stalled", 15.0, "stalled")
        os.kill(process.pid, signal.SIGCONT)
        wait_until(lambda: other.status().state in ("busy", "idle"), 15.0, "recovered")
    assert len(found) + sum(len(chunk.token_ids) for chunk in stream) == 60


def test_its_drain_is_a_cordon_and_a_wait(rig: Rig) -> None:
    engine = started(rig, foreign(rig, step_ms="20"))
    stream = engine.generate(PROMPT, SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True))
    found = list(next(stream).token_ids)
    with connect("t") as other:
        end = other.drain(30.0)
    assert end is not None and end.drained and end.finished == 1
    for chunk in stream:
        found += chunk.token_ids
    assert len(found) == 40
    wait_until(lambda: rig.entry().liveness == "dead", 10.0, "the end")
    assert rig.entry().view().state == "exited"


def test_a_drain_of_one_that_is_stopped_ends_it_all_the_same(rig: Rig) -> None:
    """It counts nothing and lets go of nothing: a while after the deadline it is stopped from here."""
    engine = started(rig, foreign(rig, step_ms="20"))
    stream = engine.generate(PROMPT, SamplingParams(temperature=0.0, max_tokens=500, ignore_eos=True))
    next(stream)
    pids, process = group(rig), engine.status().process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    with connect("t") as other:
        end = other.drain(0.5)
    assert end is not None and not end.drained and end.aborted == 1
    wait_until(lambda: are_gone(pids) and rig.entry().liveness == "dead", 10.0, "the end")


def test_a_killed_core_is_a_failure_though_the_launcher_ends_with_0(rig: Rig) -> None:
    engine = started(rig, foreign(rig))
    pids, process = group(rig), engine.status().process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: rig.entry().liveness == "dead", 20.0, "the end")
    view = rig.entry().view()
    assert view.state == "failed" and view.last_exit is not None
    assert view.last_exit.code == 0 and "engine core" in view.last_exit.cause
    assert are_gone(pids)


@pytest.mark.parametrize("who", ["guard", "supervisor"])
def test_nothing_of_the_group_outlives_a_kill(rig: Rig, who: str) -> None:
    engine = started(rig, foreign(rig))
    pids, supervisor = group(rig), engine.status().supervisor
    assert supervisor is not None
    os.kill(pids[0] if who == "guard" else supervisor.pid, signal.SIGKILL)
    wait_until(lambda: are_gone(pids), 15.0, "all of it gone")
    wait_until(lambda: rig.entry().liveness in ("dead", "stale"), 10.0, "known to be gone")
    assert len(generate(started(rig, foreign(rig)), 3)) == 3


def test_its_last_error_line_is_the_cause_of_a_failed_start(rig: Rig) -> None:
    rig.launch(foreign(rig, "--break"))
    with connect("t") as engine:
        *_, last = list(engine.watch())
    assert last.last_exit is not None and last.last_exit.phase == "handshake"
    assert "weights are broken on purpose" in last.last_exit.cause


def test_clients_of_a_frontend_are_held_over_its_death(rig: Rig) -> None:
    with RawFrontend() as frontend:
        settings = foreign(rig, restart="on-failure", step_ms="20")
        settings.join, settings.hold = frontend.handshake_address, True
        rig.launch(settings)
        engine = connect("t")
        frontend.wait_ready(60.0)
        rig.await_ready(engine)
        names = [f"r{number}" for number in range(6)]
        for name in names:
            frontend.add(name, PROMPT, max_tokens=30, ignore_eos=True)
        frontend.pump(lambda: sum(len(one.token_ids) > 3 for one in frontend.generations.values()) >= 4)
        process = engine.status().process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        found = frontend.collect_all(names, 60.0)
        assert all(one.finish_reason == FinishReason.LENGTH and len(one.token_ids) == 30 for one in found)
        assert engine.status().restarts == 1


# ---------------------------------------------------------------- a whole command


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def health(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def split(rig: Rig, restart: str = "no") -> tuple[EngineSettings, int]:
    settings, port = foreign(rig, restart=restart), free_port()
    settings.frontend_args = [str(rig.model), "--port", str(port)]
    settings.http_port = port
    return settings, port


def api_server(engine: Engine) -> int:
    text = next(event.text for event in reversed(engine.events()) if event.text.startswith("API server pid"))
    return int(text.split()[-1])


def test_both_halves_of_a_command_serve_and_end_together(rig: Rig) -> None:
    settings, port = split(rig)
    engine = started(rig, settings)
    assert engine.status().http == f"http://127.0.0.1:{port}" and health(port) == 200
    pids = [*group(rig), *session_members(api_server(engine))]
    engine.stop()
    wait_until(lambda: are_gone(pids), 15.0, "all of it gone")
    assert health(port) == 0


def test_an_engine_that_dies_for_good_takes_its_api_server_along(rig: Rig) -> None:
    settings, port = split(rig)
    engine = started(rig, settings)
    pids, process = session_members(api_server(engine)), engine.status().process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: are_gone(pids) and health(port) == 0, 25.0, "nobody serves")
    wait_until(lambda: rig.entry().liveness == "dead", 10.0, "the end")
    assert rig.entry().view().state == "failed"


@pytest.mark.parametrize("restart", ["no", "on-failure"])
def test_an_api_server_that_dies(rig: Rig, restart: str) -> None:
    """Comes back to the same engine where restarts are allowed; else the whole has failed."""
    settings, port = split(rig, restart)
    engine = started(rig, settings)
    process = engine.status().process
    assert process is not None
    first = api_server(engine)
    os.kill(session_members(first)[1], signal.SIGKILL)
    if restart == "no":
        wait_until(lambda: rig.entry().liveness == "dead", 20.0, "the end")
        last = rig.entry().view().last_exit
        assert last is not None and "API server ended" in last.cause
        return
    wait_until(lambda: api_server(engine) != first and health(port) == 200, 30.0, "served again")
    view = engine.status()
    assert view.process is not None and view.process.pid == process.pid and view.restarts == 0
