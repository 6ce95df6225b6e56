"""unit: what it prints is run as a service manager runs it, with a real notify socket."""

from __future__ import annotations

import shlex
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


class Manager:
    """The part of systemd that a Type=notify unit sees."""

    def __init__(self, folder: Path) -> None:
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.listening.bind(f"\0{folder}"[:100])
        self.listening.setblocking(False)
        self.said: list[str] = []

    @property
    def address(self) -> str:
        return "@" + self.listening.getsockname()[1:].decode()

    def heard(self, word: str) -> bool:
        try:
            while True:
                self.said += self.listening.recv(4096).decode().splitlines()
        except BlockingIOError:
            return word in self.said

    def states(self) -> list[str]:
        """The states it was told, in order."""
        self.heard("")
        return [line.removeprefix("STATUS=").split()[0] for line in self.said if line.startswith("STATUS=")]

    def run(self, unit: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        """ExecStart of the unit with its Environment, and nothing of ours but the way to Python."""
        lines = [line.partition("=") for line in unit.splitlines()]
        given = [shlex.split(value)[0] for key, _, value in lines if key == "Environment"]
        ours = ("PATH", "PYTHONPATH", "OMP_NUM_THREADS")
        environ = {key: value for key, value in env.items() if key in ours or key.startswith("PACED_")}
        environ |= dict(word.split("=", 1) for word in given)
        environ |= {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": "90000000"}
        command = shlex.split(next(value for key, _, value in lines if key == "ExecStart"))
        return subprocess.Popen(command, env=environ, cwd="/", stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_the_unit_starts_tells_and_stops_the_engine(ctl: Ctl, tmp_path: Path) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    ctl.ok("stop", "t")
    unit = ctl.ok("unit", "t").out
    manager = Manager(tmp_path)
    service = manager.run(unit, ctl.env)
    try:
        wait_until(lambda: manager.heard("READY=1"), 40.0, "READY=1")
        wait_until(lambda: manager.heard("WATCHDOG=1"), 10.0, "WATCHDOG=1")
        assert any(line.startswith("STATUS=starting") for line in manager.said)
        engine = ctl.record()["engine"]["pid"]
        assert ctl.record()["supervisor"]["pid"] == service.pid
        assert b"NOTIFY_SOCKET" not in Path(f"/proc/{engine}/environ").read_bytes()
        assert ctl.ok("status", "t", "-p", "state").out == "idle\n"
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0
        assert manager.heard("STOPPING=1")
    finally:
        service.kill()
        service.wait()


def test_a_stalled_engine_is_left_to_the_watchdog(ctl: Ctl, tmp_path: Path) -> None:
    lock = tmp_path / "deadlock"
    ctl.start("t", PACED_STEP_MS="10")
    ctl.ok("stop", "t")
    manager = Manager(tmp_path)
    service = manager.run(ctl.ok("unit", "t").out, ctl.env | {"PACED_DEADLOCK_FILE": str(lock)})
    try:
        wait_until(lambda: manager.heard("READY=1"), 40.0, "READY=1")
        ctl.generate()
        ctl.wait_running(1)
        lock.touch()
        wait_until(lambda: manager.states()[-1] == "stalled", 60.0, "stalled")
        lock.unlink()
        wait_until(lambda: manager.states()[-1] == "busy", 20.0, "busy again")
        said = manager.said
        began = next(i for i, line in enumerate(said) if line.startswith("STATUS=stalled"))
        ended = next(i for i in range(began, len(said)) if said[i].startswith("STATUS=busy"))
        assert "WATCHDOG=1" in said[:began]
        assert "WATCHDOG=1" not in said[began:ended]
    finally:
        lock.unlink(missing_ok=True)
        service.send_signal(signal.SIGTERM)
        service.wait(30)


def test_systemd_finds_nothing_wrong_with_it(ctl: Ctl, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    for more in ([], ["--system"]):
        made = ctl.ok("unit", *more, "-o", "json").document
        file = tmp_path / made["file"]
        text = made["text"].replace("Documentation=man:enginectl(1)\n", "")  # not installed while testing
        file.write_text(text)
        found = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, check=False
        )
        complaints = [line for line in found.stderr.splitlines() if made["file"] in line]
        assert not complaints


def test_an_unknown_name_is_refused_with_the_right_command(ctl: Ctl) -> None:
    result = ctl("unit", "qwen")
    assert result.code == 4
    assert "enginectl start qwen --model" in result.err
