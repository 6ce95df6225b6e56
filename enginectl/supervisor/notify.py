"""Words for the service manager that started us: ready, what goes on, still alive, about to end.

Enters: NOTIFY_SOCKET and the interval of the watchdog, taken out of the environment, so that the engine does not speak
in our name. Owns one datagram socket. Nothing here raises: a manager that does not listen is not our failure."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Does nothing when nobody asked to be told."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        address, usec, pid = (environ.pop(name, "") for name in _VARIABLES)
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if address.startswith(("/", "@")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
        is_ours = not pid or pid == str(os.getpid())
        self.watchdog_s = int(usec) / 1e6 if usec.isdigit() and is_ours else 0.0
        """The manager's patience; 0: it has no watchdog."""
        self._said = ""

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def stopping(self, status: str) -> None:
        self._send(f"STOPPING=1\nSTATUS={_line(status)}")

    def status(self, text: str) -> None:
        """One line for `systemctl status`; sent when it is another than before."""
        if text != self._said:
            self._said = text
            self._send(f"STATUS={_line(text)}")

    def tick(self, state: str, reason: str) -> None:
        """Each second. The watchdog is fed while the engine's loop turns, or none has to: a stalled engine lets it run
        out, and the manager restarts the unit."""
        self.status(f"{state} {reason}".strip())
        if self.watchdog_s and state != "stalled":
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(text.encode("utf-8", "replace"), self._address)
        except OSError:
            pass

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
