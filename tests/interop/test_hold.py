"""Who of the real frontend's clients is held, and how long: a sampled one that may fail, a hold past its limit."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.interop.api import Api, HttpError
from tests.interop.peer import START_S, Frontend, at_once
from tests.interop.test_our_engine import ROME, SETTINGS
from tests.support.ctl import Ctl
from tests.support.wait import wait_until

TOKENS = 60
LIMIT_S = 60


def completed(api: Api, **fields: object) -> str:
    choice: dict[str, str] = api.completion(ROME, max_tokens=TOKENS, ignore_eos=True, **fields)["choices"][0]
    assert choice["finish_reason"] == "length"
    return choice["text"]


def streamed(api: Api) -> str:
    """Its text; the error it ended with is an HttpError as that of a completion is."""
    stream = api.stream(ROME, max_tokens=TOKENS, ignore_eos=True)
    text = "".join(stream)
    if stream.error is not None:
        raise HttpError(500, str(stream.error))
    return text


def wait_running(ctl: Ctl, count: int) -> None:
    wait_until(
        lambda: sum(row["output_tokens"] > 2 for row in ctl.requests("h")) == count, 60.0, f"{count} that have begun"
    )


def engine_pid(ctl: Ctl, other_than: int = 0) -> int:
    """Of the engine process that serves or starts."""
    process = ctl.ok("status", "h", "-o", "json").document["process"]
    return process["pid"] if process and process["pid"] != other_than else 0


def test_who_is_held_and_how_long(ctl: Ctl, model: Path) -> None:
    """First death: greedy requests wait, a sampled one gets an error. Second: its successor is stopped in the middle of
    its start, the limit passes, and everybody gets an error. Then it goes on, and serves."""
    with Frontend(ctl.base, model) as frontend:
        ctl.ok("start", "h", "--join", frontend.handshake, "--model", str(model), "--hold",
               "--hold-limit", f"{LIMIT_S}s", "--hold-sampled", "fail", "--restart", "on-failure:5", *SETTINGS,
               timeout_s=START_S)  # fmt: skip
        frontend.wait_serving()
        undisturbed = completed(frontend.api)

        pool, clients = at_once(lambda: completed(frontend.api), lambda: streamed(frontend.api),
                                lambda: completed(frontend.api, temperature=1.0))  # fmt: skip
        wait_running(ctl, 3)
        os.kill(engine_pid(ctl), signal.SIGKILL)
        with pytest.raises(HttpError):
            clients[2].result(30)
        assert [client.result(120) for client in clients[:2]] == [undisturbed] * 2
        pool.shutdown()

        pool, clients = at_once(lambda: completed(frontend.api), lambda: streamed(frontend.api))
        wait_running(ctl, 2)
        dead = engine_pid(ctl)
        os.kill(dead, signal.SIGKILL)
        successor = wait_until(lambda: engine_pid(ctl, other_than=dead), 20.0, "a successor")
        os.kill(successor, signal.SIGSTOP)
        for client in clients:
            with pytest.raises(HttpError):
                client.result(LIMIT_S + 15)
        os.kill(successor, signal.SIGCONT)
        pool.shutdown()
        ctl.ok("wait", "h", "--for", "ready", "--timeout", "2m", timeout_s=130)
        assert completed(frontend.api) == undisturbed
        assert ctl.ok("stop", "h", "--yes").code == 0
