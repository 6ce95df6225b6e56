"""What a frontend hears when the supervisor is killed, from a process that waits for just that: ENGINE_CORE_DEAD, or,
while it still waits for READY and reads nothing else, a status that ends it.

`python -m enginectl.supervisor.lastwords` reads lines from stdin: JSON of `Whom`, the newest counts, or `bye`. At the
end of stdin without `bye` it tells them all, and ends. Until then it is a bare interpreter: zmq is imported only when
it has something to say. A frontend has no other way to notice."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field

LINGER_MS = 5000
LET_GO_S = 0.3
"""A ROUTER that has not yet seen a connection break ignores another one of the same identity."""
GOODBYE_S = 2.0


@dataclass(frozen=True, slots=True)
class Whom:
    """`outputs`: of each client of the frontend. `handshake`: while it waits for READY; `identity` in hex."""

    outputs: list[str] = field(default_factory=list)
    handshake: str = ""
    identity: str = ""


class Watchman:
    """The supervisor's end of it. Spawned when there is a frontend to tell."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def tell(self, whom: Whom) -> None:
        """From now on."""
        if self._process is None and whom.outputs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "enginectl.supervisor.lastwords"], stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._write(json.dumps(asdict(whom)))

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


def speak(whom: Whom) -> None:
    """Tells them. Ends within LINGER_MS."""
    import zmq

    from engine.codec import encode_message
    from engine.messages import ENGINE_CORE_DEAD, HandshakeStatus

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()

    def say(kind: int, address: str, message: bytes, identity: bytes = b"") -> None:
        sock = context.socket(kind)
        sock.setsockopt(zmq.IPV6, 1)
        sock.setsockopt(zmq.LINGER, LINGER_MS)
        if identity:
            sock.setsockopt(zmq.IDENTITY, identity)
        sock.connect(address)
        sock.send(message, zmq.NOBLOCK)
        sock.close()

    for address in whom.outputs:
        say(zmq.PUSH, address, ENGINE_CORE_DEAD)
    if whom.handshake:
        time.sleep(LET_GO_S)
        failed = encode_message(HandshakeStatus("FAILED", local=False, headless=True))
        say(zmq.DEALER, whom.handshake, failed, bytes.fromhex(whom.identity))
    context.term()


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its stdin, and only so
    whom = Whom()
    for line in sys.stdin:
        if line.strip() == "bye":
            return
        with contextlib.suppress(ValueError, TypeError):
            whom = Whom(**json.loads(line))
    if whom.outputs or whom.handshake:
        speak(whom)


if __name__ == "__main__":
    main()
