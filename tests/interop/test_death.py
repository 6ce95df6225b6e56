"""Ends for good, behind the real frontend under HTTP load: nobody waits, /health is not 200, the next start works."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.identity import read_stat, session_members
from tests.interop.api import Api, HttpError
from tests.interop.peer import SERVED, SHAPE, START_S, Frontend, at_once, free_port, is_open, venv
from tests.interop.test_our_engine import ROME, SETTINGS
from tests.interop.test_their_engine import ENGINE
from tests.support.ctl import Ctl
from tests.support.wait import wait_until


@pytest.fixture
def served(ctl: Ctl, model: Path) -> Iterator[Frontend]:
    with Frontend(ctl.base, model) as frontend:
        ctl.ok("start", "x", "--join", frontend.handshake, "--model", str(model), "--no-hold", "--restart", "no",
               *SETTINGS, timeout_s=START_S)  # fmt: skip
        frontend.wait_serving()
        yield frontend
        ctl("stop", "x", "--yes")


def outcome(api: Api) -> str:
    try:
        return str(api.completion(ROME, max_tokens=1500, ignore_eos=True)["choices"][0]["finish_reason"])
    except (HttpError, OSError) as error:
        return f"error {error}"[:60]


@pytest.mark.parametrize("who", ["process", "supervisor"])
def test_killed_under_load(served: Frontend, ctl: Ctl, who: str) -> None:
    _, clients = at_once(*[lambda: outcome(served.api)] * 3)
    wait_until(lambda: sum(row["output_tokens"] > 2 for row in ctl.requests("x")) >= 3, 60.0, "three running")
    view, left = ctl.ok("status", "x", "-o", "json").document, group_of(ctl, "x")
    os.kill(view[who]["pid"], signal.SIGKILL)
    assert all(client.result(10).startswith("error") for client in clients)
    wait_until(lambda: served.api.health() != 200, 10.0, "health is bad")
    wait_until(lambda: are_gone(left), 10.0, "nothing of it is left")


def group_of(ctl: Ctl, name: str) -> list[int]:
    """The supervisor, its engine, and everybody in their sessions."""
    record = ctl.record(name)
    return [pid for who in ("supervisor", "engine") for pid in session_members(record[who]["pid"])]


def are_gone(pids: list[int]) -> bool:
    return not any((stat := read_stat(pid)) is not None and stat.state not in "ZX" for pid in pids)


def test_a_drain_lets_running_clients_finish(served: Frontend, ctl: Ctl) -> None:
    pool, clients = at_once(*[lambda: served.api.completion(ROME, max_tokens=60, ignore_eos=True)] * 3)
    wait_until(lambda: len(ctl.requests("x")) == 3, 30.0, "three in flight")
    draining = ctl.popen("drain", "x", "--grace", "2m")
    wait_until(lambda: ctl.ok("status", "x", "-o", "json").document["state"] == "draining", 10.0, "draining")
    assert outcome(served.api).startswith("error"), "new requests are refused"
    assert {client.result(120)["choices"][0]["finish_reason"] for client in clients} == {"length"}
    draining.communicate(timeout=60)
    assert draining.returncode == 0
    wait_until(lambda: served.api.health() != 200, 10.0, "health is bad")
    pool.shutdown()


@pytest.mark.parametrize("who", ["guard", "supervisor", "frontend"])
def test_a_split_command_whose_part_is_killed(ctl: Ctl, model: Path, who: str) -> None:
    """Without restarts the whole ends, and the same command works again."""
    port, found = free_port(), venv()
    command = [f"{found}/bin/vllm", "serve", str(model), "--served-model-name", SERVED, "--port", str(port)]
    ctl.ok("start", "y", "--restart", "no", "--timeout", "10m", "--", *command, *SHAPE, *ENGINE, timeout_s=START_S)
    api = Api(port, SERVED, timeout_s=60)
    pool, clients = at_once(*[lambda: outcome(api)] * 3)
    wait_until(lambda: sum(row["output_tokens"] > 2 for row in ctl.requests("y")) >= 3, 60.0, "three running")
    record, left = ctl.record("y"), group_of(ctl, "y")
    events = ctl.ok("events", "y").out
    frontend = session_members(int(re.findall(r"API server pid (\d+)", events)[-1]))
    pids = {"guard": record["engine"]["pid"], "supervisor": record["supervisor"]["pid"], "frontend": frontend[1]}
    os.kill(pids[who], signal.SIGKILL)
    assert all(client.result(10).startswith("error") for client in clients)
    wait_until(lambda: api.health() != 200, 10.0, "health is bad")
    wait_until(lambda: are_gone([*left, *frontend]), 20.0, "nothing of it is left")
    pool.shutdown()


def test_a_supervisor_that_is_killed_while_its_engine_loads(ctl: Ctl, model: Path) -> None:
    """The frontend reads nothing but its handshake then, and would wait for ever."""
    with Frontend(ctl.base, model) as frontend:
        wait_until(lambda: is_open(frontend.rpc_port), START_S, "the frontend's handshake")
        ctl.ok("start", "z", "--join", frontend.handshake, "--model", str(model), *SETTINGS, "--detach")
        wait_until(lambda: "joined at" in ctl.ok("events", "z").out, 60.0, "INIT")
        supervisor, left = ctl.record("z")["supervisor"]["pid"], group_of(ctl, "z")
        os.kill(supervisor, signal.SIGKILL)
        assert frontend.process.wait(30) != 0
        assert "Application startup complete" not in frontend.log.read_text(errors="replace")
        wait_until(lambda: are_gone(left), 10.0, "nothing of it is left")


def test_a_frontend_that_is_killed_comes_back_to_the_same_engine(served: Frontend, ctl: Ctl, model: Path) -> None:
    _, clients = at_once(*[lambda: outcome(served.api)] * 2)
    wait_until(lambda: len(ctl.requests("x")) == 2, 30.0, "two in flight")
    pid = ctl.ok("status", "x", "-o", "json").document["process"]["pid"]
    served.close()
    assert all(client.result(10).startswith("error") for client in clients)
    wait_until(lambda: not ctl.requests("x"), 10.0, "their requests left the engine")
    with Frontend(ctl.base, model, rpc_port=served.rpc_port) as again:
        again.wait_serving()
        assert again.api.completion(ROME, max_tokens=3)["choices"][0]["text"] == " the founding of"
        assert ctl.ok("status", "x", "-o", "json").document["process"]["pid"] == pid
