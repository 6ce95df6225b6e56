from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.supervisor.notify import Notifier


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    """A real socket of the kind that a service manager listens on."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind("\0enginectl-test-" + str(os.getpid()))
    listening.setblocking(False)
    yield listening
    listening.close()


def environ(manager: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": "@" + manager.getsockname()[1:].decode(), **more}


def test_words_arrive_one_datagram_each(manager: socket.socket) -> None:
    notifier = Notifier(environ(manager, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid())))
    assert notifier.watchdog_s == 30.0
    notifier.status("load weights")
    notifier.status("load weights")
    notifier.ready("idle\nREADY=0")
    notifier.stopping("bye")
    said = [manager.recv(4096).decode() for _ in range(3)]
    assert said == ["STATUS=load weights", "READY=1\nSTATUS=idle READY=0", "STOPPING=1\nSTATUS=bye"]
    with pytest.raises(BlockingIOError):
        manager.recv(4096)
    notifier.close()


def test_a_stalled_engine_lets_the_watchdog_run_out(manager: socket.socket) -> None:
    notifier = Notifier(environ(manager, WATCHDOG_USEC="30000000"))
    for state in ("starting", "busy", "stalled", "stalled", "busy", "backoff"):
        notifier.tick(state, "")
    said = [manager.recv(4096).decode() for _ in range(9)]
    assert said == [
        "STATUS=starting", "WATCHDOG=1", "STATUS=busy", "WATCHDOG=1", "STATUS=stalled",
        "STATUS=busy", "WATCHDOG=1", "STATUS=backoff", "WATCHDOG=1",
    ]  # fmt: skip
    notifier.close()


def test_a_path_is_an_address_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("s")
        here = os.open(tmp_path, os.O_RDONLY)  # a path of a few bytes, wherever tmp_path is
        notifier = Notifier({"NOTIFY_SOCKET": f"/proc/self/fd/{here}/s"})
        notifier.ready("idle")
        assert listening.recv(100) == b"READY=1\nSTATUS=idle"
        notifier.close()
        os.close(here)


def test_the_engine_does_not_inherit_the_address(manager: socket.socket) -> None:
    given = environ(manager, WATCHDOG_USEC="1", WATCHDOG_PID="1", PATH="/bin")
    notifier = Notifier(given)
    assert given == {"PATH": "/bin"}
    assert notifier.watchdog_s == 0.0  # another process is watched
    notifier.close()


@pytest.mark.parametrize("address", ["", "/nobody/listens/here", "relative", "vsock:2:3"])
def test_nobody_who_listens_is_no_failure(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "junk"})
    notifier.ready("idle")
    notifier.tick("busy", "")
    notifier.close()
    notifier.status("after the end")
