"""Frames pass the supervisor untouched: what the real frontend sent and got on its leg, the engine got and sent on the
other, byte for byte and in order, for each of two API server processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.interop.api import Api
from tests.interop.peer import START_S, Frontend, at_once, is_open
from tests.interop.tap import Tap, tapped_python
from tests.interop.test_our_engine import ROME, SETTINGS
from tests.interop.test_their_engine import ENGINE, python
from tests.support.ctl import Ctl
from tests.support.wait import wait_until

CLIENTS = 2
TYPES = {"00": "ADD", "01": "ABORT", "03": "UTILITY"}
Passed = dict[tuple[str, int], list[list[str]]]


def passed(record: Path) -> Passed:
    """Messages in hex, in order, by what they are and whose; without the supervisor's own seat."""
    found: Passed = {}
    for line in record.read_text().splitlines():
        row = json.loads(line)
        if 0 <= row["client"] < CLIENTS:
            found.setdefault((row["leg"], row["client"]), []).append(row["frames"])
    return found


def play(api: Api) -> None:
    """What makes every kind of frame: long arrays in frames of their own, streams, hang-ups, utility calls."""
    api.completion(ROME, logprobs=50, max_tokens=8)
    api.completion(ROME * 4, prompt_logprobs=20, max_tokens=2)
    api.completion(["Once upon", "The cat"], n=2, temperature=0.8, seed=7, stop=["the"], max_tokens=12)
    list(api.stream(ROME, max_tokens=8))
    left = api.stream(ROME, max_tokens=1500, ignore_eos=True)
    next(iter(left))
    left.close()
    assert api.post("/reset_prefix_cache") == {"success": True}
    pool, answers = at_once(*[lambda: api.completion(ROME, max_tokens=12)["choices"][0]["text"]] * 6)
    assert len({answer.result(120) for answer in answers}) == 1
    pool.shutdown()


def lacking(legs: Passed) -> list[str]:
    """What has not passed yet, of each client: every kind of request, and an array in a frame of its own."""
    found = []
    for client in range(CLIENTS):
        seen = {TYPES[frames[0]] for frames in legs.get(("input", client), [])}
        seen |= {"ARRAY" for frames in legs.get(("output", client), []) if len(frames) > 1}
        seen |= {"READY" for _ in legs.get(("ready response", client), [])}
        found += [f"{kind} of client {client}" for kind in sorted({*TYPES.values(), "ARRAY", "READY"} - seen)]
    return found


@pytest.mark.parametrize("kind", ["enginectl", "vllm"])
def test_both_legs_carry_the_same_bytes(ctl: Ctl, model: Path, tmp_path: Path, kind: str) -> None:
    records = tmp_path / "frontend.jsonl", tmp_path / "engine.jsonl"
    interpreter = python() if kind == "vllm" else sys.executable
    with Frontend(ctl.base, model, "--api-server-count", str(CLIENTS)) as frontend:
        wait_until(lambda: is_open(frontend.rpc_port), START_S, "the frontend's handshake")
        with Tap(frontend.handshake, records[0]) as tap:
            own = ["--", *ENGINE] if kind == "vllm" else []
            shape = SETTINGS if kind == "enginectl" else [*SETTINGS[:6], *SETTINGS[-2:]]
            ctl.ok("start", "b", "--engine", kind, "--join", tap.address, "--model", str(model),
                   "--python", str(tapped_python(tmp_path / "python", interpreter, records[1])),
                   *shape, *own, timeout_s=START_S)  # fmt: skip
            frontend.wait_serving()
            for _ in range(12):  # the kernel chooses which of the API servers gets a connection
                play(frontend.api)
                if not lacking(passed(records[0])):
                    break
            wait_until(lambda: not ctl.requests("b"), 30.0, "the last hang-up has left the engine")
            wait_until(lambda: passed(records[0]) == passed(records[1]), 10.0, "both legs the same")
            ctl.ok("stop", "b", "--yes", timeout_s=60)
    legs = passed(records[0])
    assert not lacking(legs)
    print({key: f"{len(found)} messages, {sum(len(f) // 2 for m in found for f in m):,} bytes"
           for key, found in sorted(legs.items())})  # fmt: skip
