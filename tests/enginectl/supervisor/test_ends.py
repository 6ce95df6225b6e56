"""How an engine ends under its supervisor: stop, drain, restart, kill, signals."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from engine.messages import SamplingParams
from enginectl.client import Engine, connect
from enginectl.control import DrainProgress, EngineView, ExitInfo
from enginectl.control_verbs import DrainArgs, DrainEnd, KillArgs, RestartArgs, StopArgs, StopStage
from enginectl.errors import WrongState
from enginectl.identity import identify, read_stat
from enginectl.rundir import save_settings
from tests.support.rig import Rig
from tests.support.wait import wait_until


def tokens(engine: Engine, count: int) -> int:
    params = SamplingParams(max_tokens=count)
    return sum(len(chunk.token_ids) for chunk in engine.generate([3, 4, 5], params))


def test_stop_says_each_stage_and_lets_requests_finish_within_the_grace(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"})
    stream = engine.generate([3], SamplingParams(max_tokens=80))
    next(stream)
    stages = engine.control.stream("stop", StopArgs(grace_s=20.0), StopStage, StopStage)
    names = [stage.stage for stage in stages]
    assert names[0] == "drain" and names[-1] == "gone"
    assert sum(len(chunk.token_ids) for chunk in stream) == 79
    assert stream.end is not None and stream.end.finish_reason == "length"
    assert rig.entry().wait_gone(5.0)
    view = rig.entry().view()
    assert view.state == "exited" and view.last_exit is not None and view.last_exit.requested
    assert not rig.entry().runtime_dir.exists()


def test_stop_without_grace_aborts_what_runs(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"})
    stream = engine.generate([3], SamplingParams(max_tokens=1900))
    next(stream)
    engine.stop(grace_s=0.0)
    list(stream)
    assert stream.end is not None and stream.end.finish_reason == "abort"


@pytest.mark.parametrize("grace_s", [0.0, 0.5])
def test_who_is_aborted_by_a_stop_is_counted_in_its_stage_and_after_it(rig: Rig, grace_s: float) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"})
    streams = [engine.generate([3], SamplingParams(max_tokens=1900)) for _ in range(3)]
    for stream in streams:
        next(stream)
    args = StopArgs(grace_s=grace_s)
    stages = {stage.stage: stage.detail for stage in engine.control.stream("stop", args, StopStage, StopStage)}
    assert stages["abort"].startswith("3 requests aborted")
    assert rig.entry().wait_gone(5.0)
    ended = rig.entry().view().last_exit
    assert ended is not None and ended.aborted == 3
    for stream in streams:
        list(stream)


def test_a_drain_refuses_new_work_and_ends_empty(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"})
    stream = engine.generate([3], SamplingParams(max_tokens=150))
    next(stream)
    drain = engine.drain_stream(60.0)
    first = next(drain)
    assert first.running + first.waiting == 1 and first.tokens_left > 0
    assert engine.status().state == "draining"
    with pytest.raises(WrongState, match="draining"):
        tokens(engine, 1)
    assert sum(len(chunk.token_ids) for chunk in stream) == 149
    list(drain)
    assert drain.end is not None and drain.end.drained and (drain.end.finished, drain.end.aborted) == (1, 0)
    assert rig.entry().wait_gone(5.0)


def test_a_drain_is_not_blamed_for_what_others_ended(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"})
    left, aborted = (engine.generate([3], SamplingParams(max_tokens=1900), request_id=name) for name in "ab")
    kept = engine.generate([3], SamplingParams(max_tokens=150))
    for stream in (left, aborted, kept):
        next(stream)
    drain = engine.drain_stream(60.0)
    next(drain)
    left.close()
    with connect("t") as other:
        assert [outcome.result for outcome in other.abort("b")] == ["aborted"]
    list(kept)
    list(drain)
    assert drain.end is not None and (drain.end.drained, drain.end.finished, drain.end.aborted) == (True, 1, 0)
    assert rig.entry().wait_gone(5.0)
    ended = rig.entry().view().last_exit
    assert ended is not None and ended.aborted == 0
    aborted.close()


def test_a_drain_past_its_grace_aborts_the_rest_and_says_so(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"})
    stream = engine.generate([3], SamplingParams(max_tokens=1900))
    next(stream)
    drain = engine.drain_stream(1.2)
    progress = list(drain)
    assert any(item.will_miss for item in progress)
    assert drain.end is not None and not drain.end.drained and drain.end.aborted == 1
    list(stream)
    assert rig.entry().wait_gone(5.0)
    ended = rig.entry().view().last_exit
    assert ended is not None and ended.aborted == 1


def test_uncordon_takes_a_drain_back(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"})
    stream = engine.generate([3], SamplingParams(max_tokens=300))
    next(stream)
    drain = engine.drain_stream(60.0)
    next(drain)
    assert engine.uncordon().state == "busy"
    list(drain)
    assert drain.end is not None and drain.end.detail == "cancelled by uncordon"
    assert tokens(engine, 2) == 2
    list(stream)
    assert stream.end is not None and stream.end.finish_reason == "length"


def test_a_drain_may_fail_or_stay(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"})
    stream = engine.generate([3], SamplingParams(max_tokens=1900))
    next(stream)
    args = DrainArgs(grace_s=0.5, on_timeout="fail", stop=False)
    drain = engine.control.stream("drain", args, DrainProgress, DrainEnd)
    list(drain)
    assert drain.end is not None and not drain.end.drained
    assert engine.status().cordoned and next(stream).token_ids
    args = DrainArgs(grace_s=0.5, on_timeout="abort", stop=False)
    drain = engine.control.stream("drain", args, DrainProgress, DrainEnd)
    list(drain)
    assert drain.end is not None and drain.end.aborted == 1
    assert engine.status().state == "cordoned"


def test_restart_uses_the_settings_of_the_file(rig: Rig) -> None:
    engine = rig.start()
    before = engine.status()
    save_settings(rig.settings("t", num_gpu_blocks=99))
    views = engine.control.stream("restart", RestartArgs(grace_s=0.0, timeout_s=60.0), EngineView, EngineView)
    states = {view.state for view in views}
    after = views.end
    assert after is not None and after.ready is not None and after.ready.num_gpu_blocks == 99
    assert "starting" in states and after.restarts == 1
    assert before.process is not None and after.process is not None and before.process.pid != after.process.pid
    rig.remember(after.process.pid)
    assert tokens(engine, 2) == 2


def test_kill_is_kill_and_everything_ends(rig: Rig) -> None:
    engine = rig.start()
    ended = engine.control.request("kill", KillArgs(), ExitInfo)
    assert ended.signal == "9 KILL" and ended.requested
    assert rig.entry().wait_gone(10.0)
    assert rig.entry().view().state == "exited"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_to_the_supervisor_is_a_stop(rig: Rig, number: signal.Signals) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"})
    stream = engine.generate([3], SamplingParams(max_tokens=1900))
    next(stream)
    who = engine.control.supervisor
    assert who is not None
    os.kill(who.pid, number)
    list(stream)
    assert stream.end is not None and stream.end.finish_reason == "abort"
    assert rig.entry().wait_gone(10.0)
    assert rig.entry().view().state == "exited"


def test_a_second_interrupt_leaves_the_stage(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "10"}, stop="drain")
    stream = engine.generate([3], SamplingParams(max_tokens=1900))
    next(stream)
    who = engine.control.supervisor
    assert who is not None
    os.kill(who.pid, signal.SIGINT)
    wait_until(lambda: "drain" in engine.status().reason, 5.0, "the drain stage")
    os.kill(who.pid, signal.SIGINT)
    list(stream)
    assert stream.end is not None and stream.end.finish_reason == "abort"
    assert rig.entry().wait_gone(10.0)


def test_a_stop_while_it_loads_ends_it(rig: Rig) -> None:
    rig.launch(rig.settings("t", env={"PACED_LOAD_S": "60"}))
    engine = connect("t")
    wait_until(lambda: any(phase.name == "load weights" for phase in engine.status().phases), 20.0, "loading")
    with pytest.raises(WrongState, match="starting"):
        engine.call("ping")
    engine.stop(grace_s=0.0)
    assert rig.entry().wait_gone(5.0)
    assert rig.entry().view().state == "exited"


def test_hangup_reopens_the_logs(rig: Rig, tmp_path: Path) -> None:
    engine = rig.start()
    log = rig.entry().paths.supervisor_log
    log.rename(tmp_path / "moved")
    who = engine.control.supervisor
    assert who is not None
    os.kill(who.pid, signal.SIGHUP)
    wait_until(log.exists, 5.0, "a new log")
    os.kill(who.pid, signal.SIGUSR1)
    wait_until(lambda: "loop.py" in log.read_text(), 5.0, "stacks in the log")


def test_a_bad_interpreter_is_named(rig: Rig) -> None:
    rig.launch(rig.settings("t", python="/nonexistent/python"))
    with connect("t") as engine:
        *_, last = list(engine.watch())
    assert last.last_exit is not None and "/nonexistent/python" in last.last_exit.cause
    assert last.last_exit.phase == "spawn"


def test_the_supervisor_is_in_a_session_of_its_own(rig: Rig) -> None:
    pid = rig.launch(rig.settings("t"))
    stat = read_stat(pid)
    assert stat is not None and stat.session == pid and identify(pid) is not None
