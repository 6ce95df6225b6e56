"""Every verb on a real supervisor with a real engine process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import msgspec
import pytest
import zmq

from engine.messages import SamplingParams
from enginectl.client import ControlStream, Engine, connect, open_stats
from enginectl.control import ControlReply, ControlRequest
from enginectl.control_verbs import GenerateChunk, GenerateEnd, Stacks, StacksArgs
from enginectl.envelope import decode_reply, encode
from enginectl.errors import (
    CallFailed,
    Conflict,
    Deadline,
    GenerationFailed,
    NoSuchUtility,
    UsageError,
    WrongState,
)
from enginectl.identity import read_stat
from tests.support.rig import Rig, rig_in
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One ready engine for the tests that leave it as they found it."""
    with pytest.MonkeyPatch.context() as patch, rig_in(tmp_path_factory.mktemp("shared"), patch) as rig:
        rig.start("t", env={"PACED_STEP_MS": "10"}, max_num_seqs=4)
        yield rig


@pytest.fixture
def engine(shared: Rig) -> Iterator[Engine]:
    with connect("t") as attached:
        attached.uncordon()
        yield attached
        attached.call("abort_requests", [view.id for view in attached.requests()])
        wait_until(lambda: not attached.requests(), 10.0, "an idle engine")


def tokens(engine: Engine, count: int, **options: object) -> int:
    params = SamplingParams(max_tokens=count)
    return sum(len(chunk.token_ids) for chunk in engine.generate([3, 4, 5], params, **options))  # type: ignore[arg-type]


# ---------------------------------------------------------------- looking


def test_status_tells_who_what_and_how_much(engine: Engine) -> None:
    assert tokens(engine, 20) == 20
    view = wait_until(lambda: (view := engine.status()).state == "idle" and view, 5.0, "idle")
    assert view.ready is not None and view.ready.num_gpu_blocks == 256
    assert view.stats is not None and view.stats.step.steps >= 20 and not view.stats.step.derived
    assert 9.0 <= (view.stats.step.p50_ms or 0) < 100
    assert view.supervisor is not None and view.supervisor.rss_bytes < 60e6
    assert [phase.name for phase in view.phases][:3] == ["spawn", "handshake", "load weights"]
    assert all(phase.took_s is not None for phase in view.phases)
    assert view.engine.startswith("enginectl 0")


def test_rates_are_zero_soon_after_the_last_token(engine: Engine) -> None:
    tokens(engine, 50)
    wait_until(lambda: (stats := engine.status().stats) and stats.decode_tok_s == 0.0, 4.0, "a rate of 0")


def test_stats_are_published_to_whoever_listens(engine: Engine) -> None:
    stream = open_stats("t")
    view = stream.read(5.0)
    stream.close()
    assert view is not None and view.name == "t"


def test_requests_show_the_hog_and_no_tokens(engine: Engine) -> None:
    streams = [engine.generate([3] * 16, SamplingParams(max_tokens=300), request_id=f"small{n}") for n in range(3)]
    streams.append(engine.generate([3] * 400, SamplingParams(max_tokens=1500), request_id="hog"))
    wait_until(lambda: sum(bool(view.blocks) for view in engine.requests()) == 4, 5.0, "four that hold blocks")
    views = {view.external_id: view for view in engine.requests()}
    assert views["hog"].is_hog and "KV blocks" in views["hog"].note and views["hog"].blocks
    assert not views["small0"].is_hog
    for stream in streams:
        stream.close()


def test_one_that_waits_for_all_others_is_no_hog(engine: Engine) -> None:
    streams = [engine.generate([3], SamplingParams(max_tokens=400), request_id=f"r{n}") for n in range(4)]
    wait_until(lambda: sum(view.state == "running" for view in engine.requests()) == 4, 5.0, "four that run")
    streams.append(engine.generate([3], SamplingParams(max_tokens=1900), request_id="last"))
    wait_until(lambda: len(engine.requests()) == 5, 5.0, "one that waits")
    views = {view.external_id: view for view in engine.requests()}
    assert views["last"].state == "waiting"
    assert not any(view.is_hog for view in views.values())
    for stream in streams:
        stream.close()


def test_more_than_fit_is_saturated(engine: Engine) -> None:
    streams = [engine.generate([3], SamplingParams(max_tokens=500)) for _ in range(6)]
    view = wait_until(lambda: (view := engine.status()).state == "saturated" and view, 5.0, "saturated")
    assert "all 4 places" in view.reason
    for stream in streams:
        stream.close()


def test_events_remember_the_start(engine: Engine) -> None:
    assert {"spawn", "ready"} <= {event.type for event in engine.events()}
    last = engine.events()[-1].seq
    assert engine.events(since_seq=last) == []


def test_stacks_come_from_a_living_engine(engine: Engine) -> None:
    assert "run_busy_loop" in engine.control.request("stacks", StacksArgs(), Stacks).text


# ---------------------------------------------------------------- calls


def test_a_call_returns_its_value_or_its_error(engine: Engine) -> None:
    assert isinstance(engine.call("ping"), dict)
    assert engine.call("reset_prefix_cache", False) is True
    with pytest.raises(NoSuchUtility) as caught:
        engine.call("pimg")
    assert "ping" in caught.value.cause
    with pytest.raises(CallFailed, match="sleep"):
        engine.call("sleep", "deep")


@pytest.mark.parametrize("name", ["__class__", "_step", "shutdown.__call__", "scheduler.requests", "", "x" * 1_000_000])
def test_only_listed_names_are_callable(engine: Engine, name: str) -> None:
    with pytest.raises(NoSuchUtility):
        engine.call(name)


def test_a_call_ends_at_its_own_deadline_and_the_next_gets_its_own_answer(engine: Engine) -> None:
    stream = engine.generate([3], SamplingParams(max_tokens=300))
    next(stream)
    with pytest.raises(Deadline, match=r"pause_scheduler did not answer in 0\.3 s"):
        engine.call("pause_scheduler", "wait", timeout_s=0.3)
    assert engine.call("is_scheduler_paused") is True
    engine.call("resume_scheduler")
    stream.close()


def test_pause_is_seen_at_once(engine: Engine) -> None:
    engine.call("pause_scheduler", "keep")
    assert engine.status().state == "paused"
    engine.call("resume_scheduler")
    assert engine.status().state == "idle"


@pytest.mark.parametrize("state", ["idle", "busy", "paused", "sleeping", "cordoned"])
def test_every_utility_answers_in_every_state_twice(engine: Engine, state: str) -> None:
    description = engine.call("describe")
    assert isinstance(description, dict)
    rows = description["utilities"]
    assert isinstance(rows, list) and len(rows) > 20
    names = [str(row["name"]) for row in rows if isinstance(row, dict)]
    for name in names:
        if name in ("shutdown", "wake_up", "resume_scheduler"):
            continue
        for _ in range(2):
            stream = enter(engine, state)
            try:
                engine.call(name, timeout_s=5.0)
            except CallFailed as error:
                assert error.message  # refused by name, never a silence
            if stream is not None:
                stream.close()
    leave(engine)
    assert tokens(engine, 3) == 3


def enter(engine: Engine, state: str) -> ControlStream[GenerateChunk, GenerateEnd] | None:
    leave(engine)
    if state == "paused":
        engine.call("pause_scheduler", "keep")
    elif state == "sleeping":
        engine.call("sleep")
    elif state == "cordoned":
        engine.cordon()
    elif state == "busy":
        return engine.generate([3], SamplingParams(max_tokens=100))
    return None


def leave(engine: Engine) -> None:
    engine.uncordon()
    engine.call("wake_up")


# ---------------------------------------------------------------- generate and abort


def test_a_caller_that_leaves_takes_its_request_along(engine: Engine) -> None:
    stream = engine.generate([3], SamplingParams(max_tokens=1900))
    next(stream)
    stream.close()
    wait_until(lambda: not engine.requests(), 5.0, "an empty engine")
    assert tokens(engine, 3) == 3


def test_an_abort_ends_one_and_leaves_the_others(engine: Engine) -> None:
    keep = engine.generate([3, 4], SamplingParams(max_tokens=60), request_id="keep")
    drop = engine.generate([3, 4], SamplingParams(max_tokens=1900), request_id="drop")
    next(keep)
    next(drop)
    outcomes = {outcome.asked: outcome.result for outcome in engine.abort(["dr", "never"])}
    assert outcomes == {"dr": "aborted", "never": "not-found"}
    with pytest.raises(GenerationFailed, match="aborted by operator"):
        list(drop)
    assert sum(len(chunk.token_ids) for chunk in keep) >= 58
    assert keep.end is not None and keep.end.finish_reason == "length" and keep.end.output_tokens == 60
    assert engine.abort("drop")[0].result == "already-finished"


def test_an_id_in_use_and_a_bad_request_are_refused(engine: Engine) -> None:
    first = engine.generate([3], SamplingParams(max_tokens=1000), request_id="same")
    next(first)
    with pytest.raises(Conflict, match="same"):
        tokens(engine, 1, request_id="same")
    first.close()
    with pytest.raises(GenerationFailed):
        list(engine.generate([], SamplingParams(max_tokens=1)))
    with pytest.raises(UsageError):
        tokens(engine, 1, request_id="x" * 500)


def test_logprobs_travel(engine: Engine) -> None:
    chunks = list(engine.generate([3, 4], SamplingParams(max_tokens=2)))
    assert all(bytes(chunk.logprobs) == b"\xc0" for chunk in chunks)


# ---------------------------------------------------------------- cordon, the protocol's edges


def test_cordon_refuses_and_uncordon_admits(engine: Engine) -> None:
    assert engine.cordon().state == "cordoned"
    with pytest.raises(WrongState, match="cordoned") as caught:
        tokens(engine, 1)
    assert caught.value.try_ == ["enginectl uncordon t"]
    engine.uncordon()
    assert tokens(engine, 1) == 1


def raw_dealer(rig: Rig) -> tuple[zmq.Context[zmq.Socket[bytes]], zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sock = context.socket(zmq.DEALER)
    sock.setsockopt(zmq.LINGER, 0)
    sock.connect(f"ipc://{rig.entry().control_socket}")
    return context, sock


def ask(sock: zmq.Socket[bytes], request: ControlRequest) -> ControlReply:
    sock.send(encode(request))
    assert sock.poll(5000)
    return decode_reply(sock.recv())


def test_unknown_verbs_and_versions_are_answered(engine: Engine, shared: Rig) -> None:
    context, sock = raw_dealer(shared)
    reply = ask(sock, ControlRequest(id=1, verb="fly"))
    assert reply.error is not None and "'fly'" in reply.error.message and "0." in reply.error.message
    assert ask(sock, ControlRequest(id=2, verb="status", v=99)).kind == "reply"
    newer = ask(sock, ControlRequest(id=3, verb="requests", v=99))
    assert newer.error is not None and newer.error.exit == 7
    bad = ask(sock, ControlRequest(id=4, verb="call", args=msgspec.Raw(msgspec.msgpack.encode([1, 2]))))
    assert bad.error is not None and bad.error.exit == 2
    context.destroy(0)


def test_noise_on_the_control_socket_harms_nobody(engine: Engine, shared: Rig) -> None:
    context, sock = raw_dealer(shared)
    for size in range(50):
        sock.send_multipart([os.urandom(size * 20) for _ in range(size % 7 + 1)])
    for depth in (500, 5_000, 200_000):
        sock.send(b"\x91" * depth)
    sock.send(b"GET / HTTP/1.1\r\n\r\n")
    context.destroy(500)
    assert engine.status().state == "idle"
    assert tokens(engine, 3) == 3


def test_an_idle_engine_and_its_supervisor_cost_next_to_nothing(engine: Engine) -> None:
    view = wait_until(lambda: (view := engine.status()).state == "idle" and view, 5.0, "idle")
    assert view.supervisor is not None and view.process is not None
    pids = (view.supervisor.pid, view.process.pid)

    def ticks() -> int:
        return sum(stat.cpu_ticks for pid in pids if (stat := read_stat(pid)) is not None)

    before = ticks()
    end = time.monotonic() + 5.0
    wait_until(lambda: time.monotonic() > end, 10.0, "five idle seconds")
    assert ticks() - before <= 25  # 5 % of a core, on a machine that is not quiet; the bench measures 1 %
