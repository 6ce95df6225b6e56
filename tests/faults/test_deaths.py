"""However an engine dies, and however much it says: everybody who waits hears it, and the disk does not fill."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from engine.messages import SamplingParams
from enginectl.dirs import STATE_SETTING
from enginectl.errors import EngineDied
from enginectl.supervisor.logs import KEEP, MAX_BYTES
from tests.faults.test_supervisor import Background, await_inflight, generate, pids
from tests.support.rig import Rig
from tests.support.wait import wait_until

pytestmark = pytest.mark.fault
SEEN_S = 2.0


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGXCPU], ids=lambda n: n.name
)
def test_a_death_by_any_signal_is_seen_at_once_and_named(rig: Rig, number: signal.Signals) -> None:
    engine = rig.start(env={"PACED_STEP_MS": "20"})
    waiting = generate("t", 1500)
    await_inflight(engine, 1)
    watching = engine.watch()
    next(watching)
    views = Background(lambda: list(watching))
    _, process = pids(engine)
    killed_at = time.time()
    os.kill(process.pid, number)
    name = f"{int(number)} {number.name.removeprefix('SIG')}"
    waiting.join(10.0)
    assert isinstance(waiting.error, EngineDied) and f"signal {name}" in str(waiting.error)
    views.join(10.0)
    assert isinstance(views.value, list)
    ended = views.value[-1].last_exit
    assert (ended.signal, ended.requested) == (name, False)
    assert ended.at - killed_at < SEEN_S
    wait_until(lambda: rig.entry().liveness == "dead", 10.0, "the post-mortem")
    assert rig.entry().view().last_exit.signal == name  # type: ignore[union-attr]


def test_a_supervisor_killed_at_any_moment_of_a_start_leaves_nobody_and_the_next_start_works(rig: Rig) -> None:
    for moment_s in (0.0, 0.2, 0.4, 0.7, 1.1):
        pid = rig.launch(rig.settings("t", env={"PACED_LOAD_S": "0.3"}))
        time.sleep(moment_s)  # whatever it does then
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not processes_of(rig), 10.0, "nobody left")
        assert rig.entry().liveness == "stale"
    engine = rig.start()
    assert {who.pid for who in pids(engine)} <= set(processes_of(rig))
    assert sum(len(chunk.token_ids) for chunk in engine.generate([3], SamplingParams(max_tokens=3))) == 3


def processes_of(rig: Rig) -> list[int]:
    """Live pids that were started with the state directory of this rig: also one whose parent had no time to say
    that it had begun it."""
    mark = f"{STATE_SETTING}={rig.root / 'state'}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it is gone, or somebody else's
            if mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
    return found


def test_an_engine_that_talks_without_end_fills_no_disk(rig: Rig) -> None:
    megabytes = (KEEP + 1) * MAX_BYTES // 1024**2
    rig.start(env={"PACED_NOISE_MB": str(megabytes)})
    paths = rig.entry().paths
    logs = sorted(path for path in paths.state.iterdir() if path.name.startswith("engine.log"))
    assert [path.name for path in logs] == ["engine.log", *(f"engine.log.{n}" for n in range(1, KEEP))]
    assert all(path.stat().st_size <= MAX_BYTES for path in logs)
    assert sum(path.stat().st_size for path in logs) > MAX_BYTES  # the youngest part of it is there
