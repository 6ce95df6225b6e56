"""Our engine behind the real frontend, the supervisor in between: what HTTP clients get, what an operator can do.

One frontend and one supervisor for all tests here; each leaves them serving."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.client import connect
from tests.interop.api import Api, HttpError
from tests.interop.peer import START_S, Frontend, at_once
from tests.support.ctl import Ctl
from tests.support.wait import wait_until

ROME = "The history of the Roman Empire begins with"
SETTINGS = ("--set", "dtype=float32", "--set", "max_model_len=2048", "--set", "max_num_seqs=4",
            "--set", "num_gpu_blocks=600", "--set", "threads=1", "--timeout", "10m")  # fmt: skip
TOKENS = 60


@pytest.fixture(scope="module")
def frontend(ctl: Ctl, model: Path) -> Iterator[Frontend]:
    with Frontend(ctl.base, model, "--api-server-count", "2") as made:
        ctl.ok("start", "j", "--join", made.handshake, "--model", str(model), "--hold", "--restart", "on-failure:20",
               *SETTINGS, timeout_s=START_S)  # fmt: skip
        made.wait_serving()
        yield made


@pytest.fixture
def api(frontend: Frontend) -> Api:
    return frontend.api


@pytest.fixture(scope="module")
def undisturbed(frontend: Frontend) -> str:
    """Greedy text nobody interfered with."""
    return text(frontend.api)


def text(api: Api, **fields: object) -> str:
    found: str = api.completion(ROME, max_tokens=TOKENS, ignore_eos=True, **fields)["choices"][0]["text"]
    return found


def status(ctl: Ctl) -> dict:  # type: ignore[type-arg]
    return ctl.ok("status", "j", "-o", "json").document


def test_completions_equal_our_own_generate(api: Api, ctl: Ctl) -> None:
    theirs = api.completion(ROME, max_tokens=16)["choices"][0]["text"]
    ours = ctl.ok("generate", "-e", "j", ROME, "--max-tokens", "16", "--temperature", "0").out
    assert ours.rstrip("\n") == theirs
    assert theirs.startswith(" the founding of Rome in 75")


def test_chat_stops_by_itself_and_equals_our_own(api: Api, ctl: Ctl) -> None:
    choice = api.chat("Say hi.", max_tokens=200)["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["message"]["content"]
    ours = ctl.ok("chat", "-e", "j", "Say hi.", "--max-tokens", "200", "--temperature", "0", timeout_s=120).out
    assert ours.strip() == choice["message"]["content"].strip()


def test_logprobs_and_prompt_logprobs(api: Api) -> None:
    found = api.completion("The sky is", logprobs=3, max_tokens=3)["choices"][0]["logprobs"]
    assert [len(top) for top in found["top_logprobs"]] == [3, 3, 3]
    assert (
        len(api.completion("The sky", logprobs=100, max_tokens=1)["choices"][0]["logprobs"]["top_logprobs"][0]) == 100
    )
    prompt = api.completion("The sky is blue", prompt_logprobs=2, max_tokens=2)["choices"][0]["prompt_logprobs"]
    assert prompt[0] is None and all(entry for entry in prompt[1:])


def test_n_and_seeds(api: Api) -> None:
    answer = api.completion(["Once upon", "The cat"], n=2, temperature=0.8, seed=7, max_tokens=8)
    assert len({choice["text"] for choice in answer["choices"]}) == 4
    again = api.completion(["Once upon", "The cat"], n=2, temperature=0.8, seed=7, max_tokens=8)
    assert [c["text"] for c in again["choices"]] == [c["text"] for c in answer["choices"]]


def test_stops_and_biases(api: Api) -> None:
    choice = api.completion(ROME, stop=["Rome"])["choices"][0]
    assert choice["text"] == " the founding of " and choice["stop_reason"] == "Rome"
    assert api.completion(ROME, stop_token_ids=[260])["choices"][0]["finish_reason"] == "stop"
    assert api.completion("The sky is", logit_bias={"100": 100}, max_tokens=3)["choices"][0]["text"] == "ttt"


def test_a_stream_and_a_hang_up(api: Api, ctl: Ctl) -> None:
    stream = api.stream(ROME, max_tokens=12)
    assert "".join(stream) == api.completion(ROME, max_tokens=12)["choices"][0]["text"]
    assert stream.finish_reason == "length"
    left = api.stream(ROME, max_tokens=1500, ignore_eos=True)
    next(iter(left))
    rows = ctl.requests("j")
    left.close()
    assert [row["external_id"] for row in rows] == [f"{left.request_id}-0"]
    wait_until(lambda: not ctl.requests("j"), 10.0, "the request left the engine")


def test_what_the_engine_refuses_is_an_error(api: Api) -> None:
    with pytest.raises(HttpError) as caught:
        api.completion("x", structured_outputs={"json": {"type": "object"}}, max_tokens=2)
    assert caught.value.status == 500


def test_cache_pause_and_sleep(api: Api) -> None:
    assert api.post("/reset_prefix_cache") == {"success": True}
    for mode in ("abort", "keep", "wait"):
        api.post(f"/pause?mode={mode}")
        assert api.ask("GET", "/is_paused") == {"is_paused": True}
        api.post("/resume")
        assert api.ask("GET", "/is_paused") == {"is_paused": False}
    for level in (1, 2):
        api.post(f"/sleep?level={level}")
        assert api.ask("GET", "/is_sleeping") == {"is_sleeping": True}
        api.post("/wake_up")
    assert api.completion(ROME, max_tokens=3)["choices"][0]["text"] == " the founding of"


def test_an_operators_abort_by_the_users_id(api: Api, ctl: Ctl, undisturbed: str) -> None:
    victim = api.stream(ROME, max_tokens=1500, ignore_eos=True)
    pieces = iter(victim)
    next(pieces)
    pool, (other,) = at_once(lambda: text(api))
    ctl.ok("abort", "-e", "j", victim.request_id)
    list(pieces)
    assert victim.error is not None
    assert other.result(60) == undisturbed
    pool.shutdown()


def test_an_aborted_client_hears_within_a_second(
    api: Api, ctl: Ctl, frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the moment the supervisor is asked; a command's own start comes on top."""
    for name in ("ENGINECTL_STATE_DIR", "ENGINECTL_RUNTIME_DIR"):
        monkeypatch.setenv(name, ctl.env[name])
    took_s = []
    with connect("j") as engine:
        for _ in range(5):
            victim = api.stream(ROME, max_tokens=1500, ignore_eos=True)
            pieces = iter(victim)
            next(pieces)
            began = time.monotonic()
            pool, (heard,) = at_once(lambda pieces=pieces: (list(pieces), time.monotonic())[1])  # type: ignore[misc]
            assert [outcome.result for outcome in engine.abort(victim.request_id)] == ["aborted"]
            took_s.append(round(heard.result(30) - began, 3))
            assert victim.error is not None
            pool.shutdown()
    print(f"seconds from the abort to the client's error: {took_s}")
    assert max(took_s) < 1.0


def test_what_an_operator_sees_of_everybodys_requests(api: Api, ctl: Ctl) -> None:
    """Four places, five clients: the fifth waits, and is told why."""
    streams = [api.stream(ROME, max_tokens=1500, ignore_eos=True) for _ in range(4)]
    for stream in streams:
        next(iter(stream))
    pool, (fifth,) = at_once(lambda: text(api))
    rows = wait_until(lambda: found if len(found := ctl.requests("j")) == 5 else [], 10.0, "five requests")
    assert {row["external_id"] for row in rows} > {f"{stream.request_id}-0" for stream in streams}
    waiting = next(row for row in rows if row["state"] == "waiting")
    assert "sequences" in ctl.ok("explain", "-e", "j", waiting["external_id"]).out
    assert status(ctl)["stats"]["running"] == 4
    assert "saturated: 1 waiting" in ctl.ok("top", "j", "--once").out
    assert ctl.ok("call", "-e", "j", "ping").code == 0
    for stream in streams:
        stream.close()
    assert fifth.result(60)
    pool.shutdown()


def test_cordon_refuses_with_an_error(api: Api, ctl: Ctl) -> None:
    ctl.ok("cordon", "j")
    with pytest.raises(HttpError) as caught:
        api.completion(ROME)
    assert caught.value.status == 500
    ctl.ok("uncordon", "j")
    assert api.completion(ROME, max_tokens=2)["choices"][0]["text"] == " the founding"


def eight_clients(api: Api) -> list:  # type: ignore[type-arg]
    """Four that stream and run, four that wait for a place."""

    def stream() -> str:
        one = api.stream(ROME, max_tokens=TOKENS, ignore_eos=True)
        found = "".join(one)
        assert one.error is None, one.error
        return found

    return at_once(*[stream] * 4, *[lambda: text(api)] * 4)[1]


@pytest.mark.parametrize("how", ["kill -9", "restart --hold"])
def test_an_engine_is_replaced_under_eight_clients(api: Api, ctl: Ctl, undisturbed: str, how: str) -> None:
    clients = eight_clients(api)
    wait_until(lambda: sum(row["output_tokens"] > 2 for row in ctl.requests("j")) >= 4, 60.0, "four running")
    if how == "kill -9":
        os.kill(status(ctl)["process"]["pid"], signal.SIGKILL)
        held = wait_until(lambda: (view := status(ctl))["held"] and view, 10.0, "held")
        assert held["held"] == 8 and "holding 8" in held["reason"]
    else:
        ctl.ok("restart", "j", "--hold", timeout_s=120)
    assert [client.result(120) for client in clients] == [undisturbed] * 8
    wait_until(lambda: status(ctl)["state"] == "idle", 30.0, "idle")
    assert api.health() == 200
