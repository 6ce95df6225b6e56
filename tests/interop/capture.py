"""Captures what a real engine sends in situations that tests/golden lacks, with a bare frontend of two clients.

    python -m tests.interop.capture MODEL_DIR OUT.jsonl     (ENGINECTL_INTEROP_VENV names the peer's venv)

One message a line, as in tests/golden, with two more keys: `client`, and `scene`, what the frames are about."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.codec import Dialect
from tests.interop.peer import ENVIRONMENT, SHAPE, START_S, venv
from tests.support.frontend import RawFrontend

ROME = [504, 1463, 282, 260, 4469, 7057, 5634, 351]
END_S = 60.0


class Recorder(RawFrontend):
    """Writes down each message as it goes and comes."""

    def __init__(self, out: Path) -> None:
        self.scene = "start"
        self._out = open(out, "w")  # noqa: SIM115
        self._began = time.monotonic()
        super().__init__(num_clients=2, dialect=Dialect.V032)

    def note(self, leg: str, frames: Sequence[bytes], client: int = 0) -> None:
        row = {"t": round(time.monotonic() - self._began, 4), "scene": self.scene, "client": client, "leg": leg,
               "frames": [bytes(frame).hex() for frame in frames]}  # fmt: skip
        self._out.write(json.dumps(row) + "\n")
        self._out.flush()

    def send_frames(self, frames: Sequence[bytes], client: int = 0) -> None:
        self.note("input", frames, client)
        super().send_frames(frames, client)

    def _take(self, frames: list[bytes], client: int) -> None:
        self.note("output", frames, client)
        super()._take(frames, client)


def play(frontend: Recorder, engine: subprocess.Popen[bytes]) -> None:
    """Each scene ends before the next begins; the last ends the engine."""
    frontend.scene = "stop id"
    frontend.add("stop-id", ROME, max_tokens=20, stop_token_ids=[282])
    frontend.collect("stop-id")
    frontend.scene = "eos"
    frontend.add("eos", ROME, max_tokens=20, eos_token_id=282)
    frontend.collect("eos")
    frontend.scene = "logprobs 100"
    frontend.add("wide", ROME, max_tokens=2, logprobs=100)
    frontend.collect("wide")
    frontend.scene = "second client"
    frontend.add("other", ROME, client=1, max_tokens=3)
    frontend.add("first", ROME, client=0, max_tokens=3)
    frontend.collect_all(["other", "first"])
    frontend.call("is_sleeping", client=1)
    frontend.scene = "unknown utility"
    frontend.answer(frontend.ask("no_such_utility", 1))
    frontend.scene = "one client aborts a request of another"
    aborted = frontend.add("mine", ROME, client=0, max_tokens=500, ignore_eos=True)
    frontend.pump(lambda: len(aborted.token_ids) > 2)
    frontend.abort(["mine"], client=1)
    frontend.call("is_sleeping", client=0)
    frontend.scene = "pause abort"
    paused = [frontend.add(f"paused-{n}", ROME, client=n, max_tokens=500, ignore_eos=True) for n in (0, 1)]
    frontend.pump(lambda: all(len(one.token_ids) > 2 for one in paused))
    frontend.call("pause_scheduler", "abort", True)
    frontend.collect_all([one.request_id for one in paused])
    frontend.call("resume_scheduler")
    frontend.scene = "TERM under load"
    loaded = [frontend.add(f"loaded-{n}", ROME, client=n, max_tokens=500, ignore_eos=True) for n in (0, 1)]
    frontend.pump(lambda: all(len(one.token_ids) > 2 for one in loaded))
    engine.send_signal(signal.SIGTERM)
    end = time.monotonic() + END_S
    while engine.poll() is None and time.monotonic() < end:
        frontend.read_some(0.2)
    frontend.read_some(1.0)


def main(model: str, out: str) -> None:
    found: Any = venv()
    frontend = Recorder(Path(out))
    with frontend:
        port = frontend.handshake_address.rpartition(":")[2]
        engine = subprocess.Popen(
            [str(found / "bin" / "vllm"), "serve", model, "--headless", "--data-parallel-size", "1",
             "--data-parallel-size-local", "1", "--data-parallel-address", "127.0.0.1",
             "--data-parallel-rpc-port", port,
             "--enforce-eager", "--enable-logging-iteration-details", "--max-logprobs", "100", *SHAPE],
            env={**os.environ, **ENVIRONMENT}, start_new_session=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            frontend.wait_ready(START_S)
            play(frontend, engine)
        finally:
            if engine.poll() is None:
                os.killpg(engine.pid, signal.SIGKILL)
            print(f"engine ended with {engine.wait(20)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
