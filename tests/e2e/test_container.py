"""As in a container: PID 1 of its own namespace, a uid without a name, no HOME. Skipped where the kernel or its policy
gives an ordinary user no namespaces."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
UID = 54321
UNSHARE = ("unshare", "--user", f"--map-user={UID}", "--pid", "--fork", "--mount-proc")


def _has_namespaces() -> bool:
    if not all(map(shutil.which, ("unshare", "nsenter"))):
        return False
    script = "import os, pwd; assert (os.getpid(), os.getuid()) == (1, 54321); pwd.getpwuid(os.getuid())"
    done = subprocess.run([*UNSHARE, sys.executable, "-c", script], capture_output=True, timeout=20, check=False)
    return b"KeyError" in done.stderr  # it ran, and nobody has that uid


needs_namespaces = pytest.mark.skipif(not _has_namespaces(), reason="no user and pid namespaces here, or no unshare")


class Container:
    """One engine in the foreground as PID 1; `enter` runs a command beside it."""

    def __init__(self, ctl: Ctl) -> None:
        keep = ("PATH", "PYTHONPATH", "OMP_NUM_THREADS")
        self.bare = {key: ctl.env[key] for key in keep}
        self.env = self.bare | {key: value for key, value in ctl.env.items() if key.startswith("ENGINECTL_")}
        self.log = ctl.base / "stderr"
        words = ["start", "t", "--foreground", "--model", str(ctl.make_model()), "--set", "executor=null"]
        with open(self.log, "wb") as log:
            self.outer = subprocess.Popen(
                [*UNSHARE, sys.executable, "-m", "enginectl", *words], stdout=log, stderr=log, env=self.env, cwd="/"
            )
        self.pid = wait_until(self._inner, 20, "PID 1 of the namespace")

    def _inner(self) -> int:
        found = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()
        return int(found[0]) if found else 0

    def enter(self, *command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        into = ["nsenter", "-t", str(self.pid), "--user", "--pid", "--mount", "--preserve-credentials", "--"]
        return subprocess.run(
            [*into, *command], env=env or self.env, capture_output=True, text=True, timeout=60, cwd="/", check=False
        )

    def ctl(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return self.enter(sys.executable, "-m", "enginectl", *words, env=env)

    @property
    def zombies(self) -> list[str]:
        """Ended children of PID 1 that nobody has waited for."""
        states = []
        for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            try:
                states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
            except OSError:
                continue
        return [state for state in states if state == "Z"]


@pytest.fixture
def container(ctl: Ctl) -> Iterator[Container]:
    made = Container(ctl)
    try:
        yield made
    finally:
        if made.outer.poll() is None:
            os.kill(made.pid, signal.SIGKILL)  # with its PID 1 the whole namespace goes
            made.outer.wait(20)


@needs_namespaces
def test_an_engine_as_pid_1_of_nobody(container: Container) -> None:
    wait_until(lambda: container.ctl("status", "-p", "state").stdout == "idle\n", 60, "a ready engine", every_s=0.2)
    listed = container.ctl("ps", "-o", "json")
    assert (listed.returncode, listed.stderr) == (0, "")
    (item,) = json.loads(listed.stdout)["items"]
    assert (item["name"], item["supervisor"]["pid"]) == ("t", 1)
    # Whose parent has ended is PID 1's to wait for.
    assert container.enter("sh", "-c", "sleep 0.01 & exit 0").returncode == 0
    assert container.enter("sh", "-c", "(sleep 0.3; exit 3) & exit 0").returncode == 0
    wait_until(lambda: not container.zombies and "sleep" not in _commands(container), 20, "orphans to be waited for")
    assert container.ctl("status", "-p", "state").stdout == "idle\n"
    os.kill(container.pid, signal.SIGTERM)
    assert container.outer.wait(30) == 0, container.log.read_text()
    assert "ready" in container.log.read_text()


def _commands(container: Container) -> list[str]:
    return container.enter("sh", "-c", "cat /proc/[0-9]*/comm").stdout.split()


@needs_namespaces
def test_looking_and_the_doctor_need_neither_name_nor_home(ctl: Ctl) -> None:
    bare = {key: ctl.env[key] for key in ("PATH", "PYTHONPATH", "OMP_NUM_THREADS")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*UNSHARE, sys.executable, "-m", "enginectl", *words]
        return subprocess.run(command, env=bare, capture_output=True, text=True, timeout=60, cwd="/", check=False)

    listed = run("ps", "-o", "json")
    assert (listed.returncode, json.loads(listed.stdout)["kind"]) == (0, "EngineList"), listed.stderr
    checked = run("doctor", "-o", "json")
    assert checked.returncode in (0, 11), checked.stderr
    found = json.loads(checked.stdout)
    assert found["items"] and "Traceback" not in checked.stderr
    install = run("completion", "bash", "--install")
    assert (install.returncode, "HOME is not set" in install.stderr) == (2, True)
