"""Ends for good, behind the real frontend under HTTP load: nobody waits, /health is not 200, the next start works."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.api import Api, HttpError
from tests.interop.peer import START_S, Frontend, at_once
from tests.interop.test_our_engine import ROME, SETTINGS
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
    view = ctl.ok("status", "x", "-o", "json").document
    os.kill(view[who]["pid"], signal.SIGKILL)
    assert all(client.result(10).startswith("error") for client in clients)
    wait_until(lambda: served.api.health() != 200, 10.0, "health is bad")


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
