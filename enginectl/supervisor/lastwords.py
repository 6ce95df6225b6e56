"""What a frontend hears when the supervisor is killed: ENGINE_CORE_DEAD, from a process that waits for just that.

`python -m enginectl.supervisor.lastwords` reads lines from stdin: a JSON list of output addresses, the newest counts,
or `bye`. At the end of stdin without `bye` it tells them all that the engine is dead, and ends. Until then it is a bare
interpreter: zmq is imported only when it has something to say. A frontend has no other way to notice."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys

LINGER_MS = 5000
GOODBYE_S = 2.0


class Watchman:
    """The supervisor's end of it. Spawned when there is a frontend to tell."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self, addresses: list[str]) -> None:
        """Whom to tell from now on."""
        if self._process is None and addresses:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "enginectl.supervisor.lastwords"], stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._write(json.dumps(addresses))

    def _write(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()

    def close(self) -> None:
        if self._process is None:
            return
        self._write("bye")
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(GOODBYE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(GOODBYE_S)


def speak(addresses: list[str]) -> None:
    """ENGINE_CORE_DEAD to each. Ends within LINGER_MS."""
    import zmq

    from engine.messages import ENGINE_CORE_DEAD

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    for address in addresses:
        sock = context.socket(zmq.PUSH)
        sock.setsockopt(zmq.IPV6, 1)
        sock.setsockopt(zmq.LINGER, LINGER_MS)
        sock.connect(address)
        sock.send(ENGINE_CORE_DEAD, zmq.NOBLOCK)
        sock.close()
    context.term()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its stdin, and only so
    addresses: list[str] = []
    for line in sys.stdin:
        if line.strip() == "bye":
            return
        with contextlib.suppress(ValueError):
            addresses = [str(address) for address in json.loads(line)]
    if addresses:
        speak(addresses)


if __name__ == "__main__":
    main()
