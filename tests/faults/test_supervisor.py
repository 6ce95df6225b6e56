"""Faults injected into a real supervisor and a real engine process: nothing hangs, nothing is left, nothing foreign is
touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from engine.messages import SamplingParams
from enginectl.client import Engine, connect
from enginectl.errors import Conflict, CtlError, EngineDied, NotRunning
from enginectl.identity import ProcessId, identify, is_alive
from enginectl.launch import launch_supervisor
from enginectl.record import Record, write_json
from enginectl.rundir import save_settings
from tests.support.rig import REPOSITORY, Rig
from tests.support.wait import wait_until

pytestmark = pytest.mark.fault


def pids(engine: Engine) -> tuple[ProcessId, ProcessId]:
    view = engine.status()
    assert view.supervisor is not None and view.process is not None
    found = identify(view.supervisor.pid), identify(view.process.pid)
    assert found[0] is not None and found[1] is not None
    return found[0], found[1]


class Background:
    """Something that waits, in a thread, and what came of it."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.value: object = None
        self._thread = threading.Thread(target=self._run, args=(act,), daemon=True)
        self._thread.start()

    def _run(self, act: Callable[[], object]) -> None:
        try:
            self.value = act()
        except BaseException as error:
            self.error = error

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "still waiting"


def generate(name: str, tokens: int) -> Background:
    def run() -> int:
        with connect(name) as engine:
            return sum(len(chunk.token_ids) for chunk in engine.generate([3, 4, 5], SamplingParams(max_tokens=tokens)))

    return Background(run)


def await_inflight(engine: Engine, count: int) -> None:
    wait_until(lambda: len(engine.requests()) >= count, 15.0, f"{count} requests in flight")


# ---------------------------------------------------------------- the engine's death


def test_everybody_who_waits_hears_of_the_engines_death_with_the_signal(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "20"})
    waiting = [generate("t", 1500) for _ in range(3)]
    await_inflight(engine, 3)
    views = engine.watch()
    next(views)
    _, process = pids(engine)
    os.kill(process.pid, signal.SIGKILL)
    for one in waiting:
        one.join(5.0)
        assert isinstance(one.error, EngineDied) and "signal 9 KILL" in str(one.error)
    *_, last = [next(views), *views]
    assert last.state == "failed" and last.last_exit is not None and last.last_exit.signal == "9 KILL"
    assert os.path.isdir(last.last_exit.evidence)
    wait_until(lambda: rig.entry().liveness == "dead", 10.0, "a post-mortem")
    assert rig.entry().view().last_exit == last.last_exit


def test_a_failed_start_names_phase_and_cause(rig: Rig, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("")
    rig.launch(rig.settings("t", env={"PACED_FAIL_FILE": str(broken)}))
    with connect("t") as engine:
        *_, last = list(engine.watch())
    assert last.state == "failed" and last.last_exit is not None
    assert last.last_exit.phase == "load weights"
    assert "weights are broken on purpose" in last.last_exit.cause


def test_a_start_that_takes_too_long_ends_at_its_deadline(rig: Rig) -> None:
    rig.launch(rig.settings("t", env={"PACED_LOAD_S": "600"}, start_timeout_s=4.0))
    with connect("t") as engine:
        *_, last = list(engine.watch())
    assert last.last_exit is not None and "not ready within 4 s" in last.last_exit.cause
    assert last.last_exit.phase == "load weights"
    wait_until(lambda: rig.entry().liveness == "dead", 10.0, "the supervisor's end")


def test_an_engine_that_ends_with_status_0_unasked_is_a_failure(rig: Rig) -> None:
    engine = rig.start()
    _, process = pids(engine)
    os.kill(process.pid, signal.SIGTERM)
    wait_until(lambda: rig.entry().liveness == "dead", 15.0, "the end")
    view = rig.entry().view()
    assert view.state == "failed" and view.last_exit is not None and not view.last_exit.requested


def test_restart_on_failure_backs_off_and_gives_up(rig: Rig, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    engine = rig.start(env={"PACED_FAIL_FILE": str(broken)}, restart="on-failure:2")
    _, process = pids(engine)
    broken.write_text("")
    os.kill(process.pid, signal.SIGKILL)
    views = list(engine.watch())
    assert any(view.state == "backoff" and view.next_restart_in_s is not None for view in views)
    assert views[-1].state == "failed" and "gave up after 2 restarts" in views[-1].reason


def test_restart_on_failure_serves_again(rig: Rig) -> None:
    engine = rig.start(restart="on-failure")
    _, first = pids(engine)
    os.kill(first.pid, signal.SIGKILL)

    def is_back() -> bool:
        view = engine.status()
        return view.process is not None and view.process.pid != first.pid and view.ready is not None

    wait_until(is_back, 30.0, "a second engine")
    rig.await_ready(engine)
    assert engine.status().restarts == 1
    assert sum(len(chunk.token_ids) for chunk in engine.generate([3], SamplingParams(max_tokens=5))) == 5


def test_a_stop_while_it_backs_off_ends_it(rig: Rig, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    engine = rig.start(env={"PACED_FAIL_FILE": str(broken)}, restart="always")
    _, process = pids(engine)
    broken.write_text("")
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: (view := engine.status()).state == "backoff" and view.restarts >= 1, 20.0, "a second back-off")
    with pytest.raises(EngineDied):
        engine.call("ping")
    engine.stop()
    assert rig.entry().wait_gone(5.0)
    assert rig.entry().view().state == "exited"


# ---------------------------------------------------------------- stalls


def test_a_stopped_engine_is_stalled_and_recovers_alone(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "20"})
    waiting = generate("t", 300)
    await_inflight(engine, 1)
    _, process = pids(engine)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        view = wait_until(lambda: (view := engine.status()).state == "stalled" and view, 5.0, "stalled")
        assert "stopped" in view.reason
    finally:
        os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: engine.status().state in ("busy", "idle"), 5.0, "recovered")
    waiting.join(60.0)
    assert waiting.error is None and waiting.value == 300


def test_a_deadlocked_step_is_stalled_and_its_stacks_are_saved(rig: Rig, tmp_path: Path) -> None:
    lock = tmp_path / "deadlock"
    engine = rig.start(env={"PACED_DEADLOCK_FILE": str(lock)})
    lock.write_text("")
    waiting = generate("t", 5)
    wait_until(lambda: engine.status().state == "stalled", 20.0, "stalled")
    evidence = rig.entry().paths.evidence
    wait_until(
        lambda: any("execute_model" in path.read_text() for path in evidence.glob("*/stacks.txt")), 10.0, "stacks"
    )
    lock.unlink()
    waiting.join(20.0)
    assert waiting.error is None
    wait_until(lambda: engine.status().state == "idle", 10.0, "recovered")


def test_a_long_prefill_is_busy_not_stalled(rig: Rig) -> None:
    engine = rig.start(env={"PACED_BURN_S": "0.09"})
    waiting = Background(lambda: list(connect("t").generate([3] * 100, SamplingParams(max_tokens=1))))
    states: set[str] = set()
    end = time.monotonic() + 8.0
    while time.monotonic() < end:
        states.add(engine.status().state)
        time.sleep(0.1)
    waiting.join(60.0)
    assert "busy" in states and "stalled" not in states


# ---------------------------------------------------------------- the supervisor's death


@pytest.mark.parametrize("when", ["idle", "busy", "loading"])
def test_the_engine_ends_with_its_supervisor_and_the_next_start_works(rig: Rig, when: str) -> None:
    load_s = "30" if when == "loading" else "0"
    env = {"PACED_STEP_MS": "20", "PACED_LOAD_S": load_s}
    pid = rig.launch(rig.settings("t", env=env))
    engine = connect("t")
    if when == "loading":
        wait_until(lambda: any(p.name == "load weights" for p in engine.status().phases), 20.0, "loading")
    else:
        rig.await_ready(engine)
    waiting = [generate("t", 1500) for _ in range(2)] if when == "busy" else []
    if waiting:
        await_inflight(engine, 2)
    _, process = pids(engine)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(process), 10.0, "the engine's end")
    assert rig.entry().liveness == "stale"
    assert ("in phase 'load weights'" in rig.entry().view().reason) == (when == "loading")
    for one in waiting:
        one.join(10.0)
        assert isinstance(one.error, CtlError)
    again = rig.start(env={"PACED_STEP_MS": "1"})
    assert sum(len(chunk.token_ids) for chunk in again.generate([3], SamplingParams(max_tokens=3))) == 3


def test_a_start_while_the_orphan_still_drains_ends_the_orphan_first(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "20"}, orphan_grace_s=60.0)
    waiting = generate("t", 1900)
    await_inflight(engine, 1)
    supervisor, process = pids(engine)
    os.kill(supervisor.pid, signal.SIGKILL)
    wait_until(lambda: rig.entry().liveness == "lost", 5.0, "lost")
    assert rig.entry().view().state == "lost"
    waiting.join(10.0)
    again = rig.start()
    assert not is_alive(process)
    assert any(event.type == "lost" for event in again.events())
    assert sum(len(chunk.token_ids) for chunk in again.generate([3], SamplingParams(max_tokens=3))) == 3


def test_a_recycled_pid_in_the_record_is_never_signalled(rig: Rig) -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        who = identify(bystander.pid)
        assert who is not None
        save_settings(rig.settings("t"))
        reused = ProcessId(pid=who.pid, start_time=who.start_time - 3, boot_id=who.boot_id)
        write_json(rig.entry().paths.record, Record(name="t", supervisor=reused, engine=reused, state="idle"))
        assert rig.entry().liveness == "stale"
        with pytest.raises(NotRunning):
            connect("t")
        engine = rig.start()
        engine.stop()
        assert is_alive(who)
        bystander.communicate(b"\n", timeout=10)


def test_twenty_parallel_starts_give_one_supervisor(rig: Rig) -> None:
    save_settings(rig.settings("t"))
    rig._names.add("t")
    command = [sys.executable, "-c", "from enginectl.launch import launch_supervisor as f; print(f('t', 60.0).pid)"]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True) for _ in range(20)
    ]
    outs = [child.communicate(timeout=100) for child in children]
    winners = [out for out, _ in outs if out.strip()]
    assert len(winners) == 1
    assert sum("has a supervisor already" in err for _, err in outs) == 19
    rig.await_ready(connect("t"))
    with pytest.raises(Conflict):
        launch_supervisor("t")
    assert connect("t").status().state == "idle"


# ---------------------------------------------------------------- the runtime directory


def test_a_removed_runtime_directory_comes_back(rig: Rig) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "20"})
    waiting = generate("t", 100)
    await_inflight(engine, 1)
    shutil.rmtree(rig.entry().runtime_dir)
    with wait_until(lambda: _try_connect("t"), 5.0, "a new control socket") as fresh:
        assert fresh.status().state in ("busy", "idle")
        assert sum(len(chunk.token_ids) for chunk in fresh.generate([3], SamplingParams(max_tokens=5))) == 5
    waiting.join(30.0)
    assert waiting.value == 100


def _try_connect(name: str) -> Engine | None:
    try:
        return connect(name)
    except CtlError:
        return None


def test_a_stolen_control_socket_is_reported_and_taken_back(rig: Rig) -> None:
    engine = rig.start()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    thief = context.socket(zmq.ROUTER)
    thief.bind(f"ipc://{rig.entry().control_socket}")

    def is_told() -> bool:
        return any("taken by another process" in event.text for event in engine.events())

    wait_until(is_told, 5.0, "an event")
    assert "taken by another process" in engine.status().reason
    with connect("t") as fresh:
        assert fresh.status().name == "t"
    thief.close(0)
    context.term()


def test_noise_on_the_engines_sockets_is_dropped_and_counted(rig: Rig) -> None:
    engine = rig.start()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    for kind, name in ((zmq.DEALER, "hs.sock"), (zmq.DEALER, "in.sock"), (zmq.PUSH, "out.sock")):
        sock = context.socket(kind)
        sock.connect(f"ipc://{rig.entry().runtime_dir / name}")
        for number in range(300):
            sock.send_multipart([os.urandom(number % 50) for _ in range(number % 20 + 1)])
        sock.send(b"\x91" * 200_000)
        sock.close(2000)
    context.term()
    wait_until(lambda: (stats := engine.status().stats) and stats.rejected_messages >= 300, 10.0, "a count")
    assert sum(len(chunk.token_ids) for chunk in engine.generate([3], SamplingParams(max_tokens=5))) == 5
    assert sum(event.type == "unreadable" for event in engine.events()) < 30


# ---------------------------------------------------------------- the end of a group


def test_stopped_means_that_grandchildren_are_gone_too(rig: Rig) -> None:
    engine = rig.start(env={"PACED_CHILD": "1"})
    _, process = pids(engine)
    members = [identify(pid) for pid in _session(process.pid)]
    assert len(members) == 2
    engine.stop(grace_s=0.0)
    assert not any(is_alive(who) for who in members)


def _session(leader: int) -> list[int]:
    from enginectl.identity import session_members

    return session_members(leader)


def test_a_stopped_engine_process_can_be_stopped(rig: Rig) -> None:
    engine = rig.start()
    _, process = pids(engine)
    os.kill(process.pid, signal.SIGSTOP)
    engine.stop(grace_s=0.0)
    assert not is_alive(process)


def test_no_file_grows_over_unclean_ends(rig: Rig) -> None:
    def files() -> list[str]:
        base = rig.entry().runtime_dir
        return sorted(os.listdir(base))

    seen = []
    for _ in range(3):
        engine = rig.start()
        supervisor, process = pids(engine)
        os.kill(supervisor.pid, signal.SIGKILL)
        wait_until(lambda process=process: not is_alive(process), 10.0, "end")  # type: ignore[misc]
        seen.append(files())
    assert seen[0] == seen[1] == seen[2]


def test_a_planted_word_is_in_no_file(rig: Rig) -> None:
    engine = rig.start()
    prompt = [123, 211, 77, 123, 211, 77, 123]
    list(engine.generate(prompt, SamplingParams(max_tokens=3)))
    engine.requests()
    _, process = pids(engine)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: rig.entry().liveness == "dead", 10.0, "the end")
    planted = ("123, 211, 77", "123,211,77")
    for path in rig.entry().paths.state.rglob("*"):
        if path.is_file():
            text = path.read_text(errors="replace").replace("\n", "").replace("  ", " ")
            assert not any(word in text for word in planted), path
