"""vLLM's engine under our supervisor: every verb, its deaths, and clients that are held while it is replaced."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.identity import read_stat, session_members
from tests.interop.api import Api
from tests.interop.peer import SERVED, SHAPE, START_S, free_port, venv
from tests.interop.test_our_engine import ROME, eight_clients
from tests.support.ctl import Ctl
from tests.support.wait import wait_until

ENGINE = ["--enforce-eager", "--enable-logging-iteration-details"]


def python() -> str:
    found = venv()
    assert found is not None
    return str(found / "bin" / "python")


def start(ctl: Ctl, model: Path, name: str, *options: str) -> None:
    shape = [
        f"--set={key}={value}" for key, value in (("max_model_len", 2048), ("max_num_seqs", 4), ("dtype", "float32"))
    ]
    ctl.ok("start", name, "--engine", "vllm", "--python", python(), "--model", str(model), *shape, "--timeout", "10m",
           *options, "--", *ENGINE, timeout_s=START_S)  # fmt: skip


def status(ctl: Ctl, name: str) -> dict:  # type: ignore[type-arg]
    return ctl.ok("status", name, "-o", "json").document


@pytest.fixture(scope="module")
def alone(ctl: Ctl, model: Path) -> Iterator[Ctl]:
    """Without any external frontend."""
    start(ctl, model, "v")
    yield ctl
    ctl("stop", "v", "--yes", timeout_s=60)


def test_every_verb_alone(alone: Ctl) -> None:
    ctl = alone
    view = status(ctl, "v")
    assert view["ready"]["max_model_len"] == 2048 and view["ready"]["vllm_version"].startswith("0.32")
    assert [phase["name"] for phase in view["phases"]] == ["spawn", "handshake", "loading"]
    text = ctl.ok("generate", "-e", "v", ROME, "--max-tokens", "16", "--temperature", "0").out
    assert text.startswith(" the founding of Rome in 75")
    assert ctl.ok("chat", "-e", "v", "Say hi.", timeout_s=120).out.strip()
    assert ctl.ok("call", "-e", "v", "is_sleeping").out.strip() == "false"
    assert ctl.ok("call", "-e", "v", "reset_prefix_cache", "false", "false").out.strip() == "true"
    assert ctl("call", "-e", "v", "--list").code == 4
    assert "no_such" in ctl("call", "-e", "v", "no_such").err


def test_an_abort_and_its_stacks(alone: Ctl) -> None:
    ctl = alone
    running = ctl.generate(name="v")
    row = ctl.wait_running(1, "v")[0]
    assert "File" in ctl.ok("stacks", "v").out
    assert "aborted" in ctl.ok("abort", "-e", "v", row["external_id"]).out
    assert running.wait(10) == 1
    stats = wait_until(lambda: (view := status(ctl, "v"))["state"] == "idle" and view["stats"], 10.0, "idle")
    assert stats["step"]["p50_ms"] and not stats["step"]["derived"]


def test_a_core_that_is_stopped_is_a_stall(alone: Ctl) -> None:
    core = status(alone, "v")["process"]["pid"]
    running = alone.generate(tokens=60, name="v")
    alone.wait_running(1, "v")
    os.kill(core, signal.SIGSTOP)
    wait_until(lambda: status(alone, "v")["state"] == "stalled", 20.0, "stalled")
    os.kill(core, signal.SIGCONT)
    assert running.wait(60) == 0
    wait_until(lambda: status(alone, "v")["state"] == "idle", 20.0, "recovered")


def test_a_drain_is_ours(ctl: Ctl, model: Path) -> None:
    start(ctl, model, "d")
    running = ctl.generate(tokens=60, name="d")
    ctl.wait_running(1, "d")
    result = ctl.ok("drain", "d", "-o", "json", timeout_s=120)
    assert running.wait(10) == 0
    assert json.loads(result.out.splitlines()[-1])["drained"]
    wait_until(lambda: ctl.record("d")["ended"], 20.0, "ended")
    assert ctl.record("d")["state"] == "exited"


def test_an_engine_core_that_is_killed_is_a_failure_with_nothing_left(ctl: Ctl, model: Path) -> None:
    start(ctl, model, "k")
    record = ctl.record("k")
    group = session_members(record["engine"]["pid"])
    assert len(group) >= 3
    os.kill(status(ctl, "k")["process"]["pid"], signal.SIGKILL)
    wait_until(lambda: ctl.record("k")["ended"], 30.0, "ended")
    assert ctl.record("k")["state"] == "failed" and "engine core" in ctl.record("k")["last_exit"]["cause"]
    assert not [pid for pid in group if read_stat(pid) is not None and read_stat(pid).state != "Z"]  # type: ignore[union-attr]


def test_a_command_that_was_split(ctl: Ctl, model: Path) -> None:
    """All three processes, the HTTP address, eight clients and a `kill -9`; everything is gone afterwards."""
    port = free_port()
    found = venv()
    assert found is not None
    command = [str(found / "bin" / "vllm"), "serve", str(model), "--served-model-name", SERVED, "--port", str(port)]
    ctl.ok("start", "s", "--hold", "--restart", "on-failure", "--timeout", "10m", "--", *command, *SHAPE, *ENGINE,
           timeout_s=START_S)  # fmt: skip
    view = status(ctl, "s")
    assert view["http"] == f"http://127.0.0.1:{port}"
    api = Api(port, SERVED, timeout_s=300)
    undisturbed = api.completion(ROME, max_tokens=60, ignore_eos=True)["choices"][0]["text"]
    clients = eight_clients(api)
    wait_until(lambda: sum(row["output_tokens"] > 2 for row in ctl.requests("s")) >= 4, 60.0, "four running")
    os.kill(view["process"]["pid"], signal.SIGKILL)
    held = wait_until(lambda: (seen := status(ctl, "s"))["held"] and seen, 20.0, "held")
    assert held["held"] == 8
    assert [client.result(300) for client in clients] == [undisturbed] * 8
    assert api.health() == 200
    ctl.ok("stop", "s", "--yes", timeout_s=60)
    wait_until(lambda: api.health() == 0, 20.0, "nobody serves")
