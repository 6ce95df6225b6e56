"""The real peer: `vllm serve` of another venv as a frontend, and who does what to it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import pytest

from tests.interop.api import Api
from tests.support.wait import wait_until

T = TypeVar("T")
START_S = 600.0
"""A deadline, not an expectation: alone on two cores it takes a minute."""
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}  # fmt: skip
SHAPE = ["--max-model-len", "2048", "--max-num-seqs", "4", "--dtype", "float32"]
SERVED = "smol"


def venv() -> Path | None:
    """Where make_venv.sh built it; None when it did not. Raises UsageError when the variable names none."""
    given = os.environ.get("ENGINECTL_INTEROP_VENV")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(given) if given else cache / "enginectl" / "interop" / "vllm-0.32.0"
    if (path / "bin" / "vllm").exists():
        return path
    if given:
        raise pytest.UsageError(f"ENGINECTL_INTEROP_VENV={given}: no vLLM is installed there")
    return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_open(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Frontend:
    """`vllm serve --data-parallel-size-local 0`, in a session of its own; close() ends all of it."""

    def __init__(self, base: Path, model: Path, *args: str, rpc_port: int | None = None, http_port: int | None = None):
        found = venv()
        assert found is not None
        self.rpc_port, self.http_port = rpc_port or free_port(), http_port or free_port()
        self.log = base / f"frontend-{self.http_port}-{time.monotonic_ns()}.log"
        command = [
            str(found / "bin" / "vllm"), "serve", str(model), "--served-model-name", SERVED,
            "--data-parallel-size", "1", "--data-parallel-size-local", "0", "--data-parallel-address", "127.0.0.1",
            "--data-parallel-rpc-port", str(self.rpc_port), "--host", "127.0.0.1", "--port", str(self.http_port),
            "--max-logprobs", "100", *SHAPE, *args,
        ]  # fmt: skip
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **ENVIRONMENT},
            )  # fmt: skip

    @property
    def handshake(self) -> str:
        return f"tcp://127.0.0.1:{self.rpc_port}"

    @property
    def api(self) -> Api:
        return Api(self.http_port, SERVED)

    def wait_serving(self, timeout_s: float = START_S) -> None:
        def serves() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"the frontend ended:\n{self.log.read_text(errors='replace')[-3000:]}")
            return self.api.health() == 200

        wait_until(serves, timeout_s, "the frontend serves")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)

    def __enter__(self) -> Frontend:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def at_once(*acts: Callable[[], T]) -> tuple[ThreadPoolExecutor, list]:  # type: ignore[type-arg]
    """Runs them all in threads; the futures are in order."""
    pool = ThreadPoolExecutor(len(acts))
    return pool, [pool.submit(act) for act in acts]
