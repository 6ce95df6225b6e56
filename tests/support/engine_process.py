"""A real `python -m engine` against a RawFrontend: started, watched, and gone at the end of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.frontend import RawFrontend

ROOT = Path(__file__).resolve().parent.parent.parent
START_S = 60.0
TOO_LONG_S = 20.0


def engine_environment(**extra: str) -> dict[str, str]:
    """One torch thread, this checkout on the path, nothing of the user's settings."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith("ENGINECTL_")}
    return {**keep, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **extra}


class EngineProcess:
    """Context manager. `options` are those of `python -m engine`, e.g. max_num_seqs=4, executor="null"."""

    def __init__(
        self,
        frontend: RawFrontend,
        model: Path,
        log: Path,
        *,
        env: dict[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
        flags: tuple[str, ...] = (),
        interpreter: tuple[str, ...] = (),
        **options: object,
    ) -> None:
        self.frontend = frontend
        self.log_path = log
        words = [sys.executable, *interpreter, "-m", "engine", "--handshake", frontend.handshake_address]
        words += ["--model", str(model), *flags]
        for name, value in options.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        with log.open("ab") as sink:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=engine_environment(**(env or {})),
                pass_fds=pass_fds,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, timeout_s: float = TOO_LONG_S) -> int:
        """The exit status; negative for a signal."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"engine {self.pid} still runs after {timeout_s} s:\n{self.log[-3000:]}") from None

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(TOO_LONG_S)


class Running:
    """A frontend and an engine that is ready, in a short directory of their own."""

    def __init__(
        self, model: Path, *, num_clients: int = 1, read_outputs: bool = True, output_hwm: int = 0, **options: object
    ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="ectl-")
        home = Path(self._home.name)
        self.frontend = RawFrontend(home, num_clients=num_clients, read_outputs=read_outputs, output_hwm=output_hwm)
        self.engine = EngineProcess(self.frontend, model, home / "log", **options)  # type: ignore[arg-type]
        try:
            self.ready = self.frontend.wait_ready(START_S)
        except BaseException:
            print(self.engine.log)
            self.close()
            raise

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.engine.__exit__(None, None, None)
        self.frontend.close()
        self._home.cleanup()


def stats_with_nothing_left(frontend: RawFrontend, client: int = 0) -> dict[str, Any]:
    """No request runs or waits and every block is free, now: figures are published before outputs go."""
    stats = frontend.call("stats", client=client)
    assert isinstance(stats, dict)
    assert stats["running"] == stats["waiting"] == 0 and stats["free_blocks"] == stats["num_gpu_blocks"], stats
    return stats


def wait_for_exit(engine: EngineProcess, timeout_s: float) -> float:
    """Seconds it took to end."""
    began = time.monotonic()
    engine.wait(timeout_s)
    return time.monotonic() - began
