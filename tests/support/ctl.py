"""The real command in a process of its own, with directories of its own, and nothing left behind.

`Ctl` runs `python -m enginectl ...` with a deadline; close() ends every engine it may have started, by the pid, start
time and boot id that were recorded."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enginectl.identity import ProcessId, is_alive, send_signal, session_members
from tests.support.wait import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
PACED = "tests.support.paced_executor:PacedExecutor"


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """stdout as the one JSON document it has to be."""
        found: dict[str, Any] = json.loads(self.out)
        assert found["schema"] == "enginectl/v1"
        assert found["kind"]
        return found


class Ctl:
    def __init__(self, base: Path, **environ: str) -> None:
        self.base = base
        self.runtime = Path(tempfile.mkdtemp(prefix="ctl-"))  # short: the path of a socket has 107 bytes
        self.model = base / "tiny"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(base / "home"),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "ENGINECTL_STATE_DIR": str(base / "state"),
            "ENGINECTL_RUNTIME_DIR": str(self.runtime / "r"),
            "ENGINECTL_CACHE_DIR": str(base / "cache"),
            **environ,
        }
        (base / "home").mkdir(exist_ok=True)
        self._children: list[subprocess.Popen[str]] = []

    def __call__(self, *args: str, timeout_s: float = 60.0, stdin: str = "", **environ: str) -> Result:
        """Runs one command to its end."""
        child = self.popen(*args, **environ)
        try:
            out, err = child.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            out, err = child.communicate()
            raise AssertionError(f"{args} not done in {timeout_s} s\n{out}\n{err}") from None
        finally:
            self._children.remove(child)
        return Result(child.returncode, out, err)

    def ok(self, *args: str, **keywords: Any) -> Result:
        result = self(*args, **keywords)
        assert result.code == 0, f"{args} ended with {result.code}\n{result.out}\n{result.err}"
        return result

    def popen(self, *args: str, **environ: str) -> subprocess.Popen[str]:
        """Begins one command; it is killed at the end of the test when it still runs."""
        child = subprocess.Popen(
            [sys.executable, "-m", "enginectl", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=self.env | environ,
            cwd=self.base,
        )
        self._children.append(child)
        return child

    def start(self, name: str = "t", *args: str, executor: str = PACED, **environ: str) -> Result:
        """A tiny engine that is ready."""
        self.make_model()
        return self.ok(
            "start",
            name,
            "--model",
            str(self.model),
            "--set",
            f"executor={executor}",
            "--set",
            "num_gpu_blocks=512",
            "--timeout",
            "60s",
            *args,
            **environ,
        )

    def make_model(self) -> Path:
        from tests.support.tiny_model import make_tiny_model

        if not self.model.exists():
            make_tiny_model(self.model)
        return self.model

    def old_supervisor(self, name: str, *words: str) -> subprocess.Popen[str]:
        """A peer that speaks as the first version did, instead of a supervisor, once it serves."""
        words = (sys.executable, "-m", "tests.support.old_supervisor", name, *words)
        child = subprocess.Popen(words, env=self.env, cwd=self.base, text=True)
        self._children.append(child)
        record = self.base / "state" / "engines" / name / "record.json"
        wait_until(lambda: record.exists() and f'"pid": {child.pid}' in record.read_text(), 20.0, "the old supervisor")
        return child

    def generate(self, *args: str, tokens: int = 1500, name: str = "t") -> subprocess.Popen[str]:
        """A long request in the background."""
        return self.popen("generate", "-e", name, "the world", "--max-tokens", str(tokens), "--ignore-eos", *args)

    def requests(self, name: str = "t") -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.ok("requests", name, "-o", "json").document["items"]
        return items

    def events(self, name: str = "t") -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.ok("events", name, "-n", "1000", "-o", "json").document["items"]
        return items

    def wait_running(self, count: int, name: str = "t") -> list[dict[str, Any]]:
        """The requests, once `count` of them run and have given a token."""

        def there() -> list[dict[str, Any]]:
            items = [item for item in self.requests(name) if item["output_tokens"] > 0]
            return items if len(items) >= count else []

        return wait_until(there, 20.0, f"{count} requests running")

    def record(self, name: str = "t") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.base / "state" / "engines" / name / "record.json").read_text())
        return found

    def processes(self) -> list[ProcessId]:
        """Every supervisor and engine that was recorded."""
        found = []
        for path in (self.base / "state" / "engines").glob("*/record.json"):
            record = json.loads(path.read_text())
            found += [ProcessId(**record[key]) for key in ("supervisor", "engine") if record.get(key)]
        return found

    def close(self) -> None:
        for child in self._children:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=10)
        left = [who for who in self.processes() if is_alive(who)]
        for who in left:
            for pid in session_members(who.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            send_signal(who, signal.SIGKILL)
        wait_until(lambda: not any(is_alive(who) for who in left), 15.0, "engines gone")
        shutil.rmtree(self.runtime, ignore_errors=True)


@contextlib.contextmanager
def stopped_engine(ctl: Ctl, name: str = "t") -> Iterator[int]:
    """The engine's process is stopped and its supervisor has seen it; it goes on afterwards."""
    pid: int = ctl.record(name)["engine"]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: ctl.ok("status", name, "-p", "state").out == "stalled\n", 20.0, "stalled")
        wait_until(lambda: "stalled" in [e["type"] for e in ctl.events(name)], 10.0, "the stall told")
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)
