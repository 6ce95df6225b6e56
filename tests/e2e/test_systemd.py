"""The printed unit under a real systemd: a user's manager in a namespace of its own, where a machine has one installed
and does not run it. Skipped elsewhere: nobody's own manager is touched."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e

MANAGER = Path("/lib/systemd/systemd")
BOOTED = Path("/run/systemd/system")
UNIT = "enginectl-t.service"
CGROUPS = [Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup")]
"""Where a manager keeps its processes apart: the first that is there (version 1, version 2)."""
_BEGIN = f"mount -t tmpfs none /run && mkdir -p {BOOTED} && exec {MANAGER} --user --log-target=console"
Systemctl = Callable[..., str]


@pytest.fixture
def systemctl(ctl: Ctl) -> Iterator[Systemctl]:
    """`systemctl --user` of a manager that ends with the test."""
    if os.geteuid() or not MANAGER.exists() or BOOTED.exists():
        pytest.skip("wants root, and systemd installed but not running")
    base = next((place for place in CGROUPS if os.access(place / "cgroup.procs", os.W_OK)), None)
    if base is None:
        pytest.skip("no cgroups to write to")
    cgroup = base / f"enginectl-test-{os.getpid()}"
    cgroup.mkdir()  # a manager takes along whoever shares its own
    runtime = ctl.runtime / "sd"
    runtime.mkdir(mode=0o700)
    environ = ctl.env | {"XDG_RUNTIME_DIR": str(runtime)}
    into = f"echo $$ > {cgroup}/cgroup.procs && exec unshare -m sh -c '{_BEGIN}'"
    with open(ctl.base / "systemd.log", "wb") as log:
        manager = subprocess.Popen(["sh", "-c", into], env=environ, stdout=log, stderr=log)

    def ask(*words: str) -> str:
        there = ["nsenter", "-t", str(manager.pid), "-m", "systemctl", "--user", *words]
        return subprocess.run(there, env=environ, capture_output=True, text=True, timeout=60).stdout.strip()

    try:
        if not comes_up(manager, ask):
            pytest.skip(f"no manager here: {(ctl.base / 'systemd.log').read_text(errors='replace')[-300:]}")
        yield ask
    finally:
        ask("stop", UNIT)
        manager.terminate()
        manager.wait(30)
        remove(cgroup)


def remove(cgroup: Path) -> None:
    """The kernel lets go of what just ended a moment later."""

    def is_gone() -> bool:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        return not cgroup.exists()

    wait_until(is_gone, 20.0, "the cgroup is gone")


def comes_up(manager: subprocess.Popen[bytes], ask: Systemctl) -> bool:
    """False where this machine does not let it: no namespaces, no cgroups."""
    return wait_until(
        lambda: "no" if manager.poll() is not None else ask("is-system-running") in ("running", "degraded") and "yes",
        30.0,
        "systemd runs or ends",
    ) == "yes"  # fmt: skip


def test_ready_watched_restarted_and_stopped(ctl: Ctl, systemctl: Systemctl) -> None:
    def shown(key: str) -> str:
        return systemctl("show", UNIT, "-p", key, "--value")

    def engine_pid(other_than: int = 0) -> int:
        seen = ctl("status", "t", "-o", "json")
        view = seen.document if not seen.code else {}
        return view["process"]["pid"] if view.get("state") == "idle" and view["process"]["pid"] != other_than else 0

    ctl.start("t", executor="null")
    ctl.ok("stop", "t")
    units = Path(ctl.env["HOME"]) / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    text = ctl.ok("unit", "t").out.replace("WatchdogSec=90", "WatchdogSec=8").replace("RestartSec=5", "RestartSec=1")
    (units / UNIT).write_text(text)
    systemctl("daemon-reload")

    systemctl("start", UNIT)
    assert systemctl("is-active", UNIT) == "active" and shown("StatusText").startswith("ready after")
    first = engine_pid()
    assert first, "ready is said only when it is"

    os.kill(first, signal.SIGSTOP)
    second = wait_until(lambda: engine_pid(other_than=first), 60.0, "the watchdog ran out, and another engine serves")
    assert shown("NRestarts") == "1"

    os.kill(int(shown("MainPID")), signal.SIGKILL)
    wait_until(lambda: engine_pid(other_than=second), 60.0, "a supervisor that was killed is replaced, and its engine")
    assert shown("NRestarts") == "2"

    systemctl("stop", UNIT)
    assert (systemctl("is-active", UNIT), shown("Result")) == ("inactive", "success")
    assert ctl.record("t")["last_exit"]["code"] == 0
