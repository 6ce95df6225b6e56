"""`start --join`, `--engine`, `--` and `restart --hold` as they are typed."""

from __future__ import annotations

import sys

import pytest

from engine.messages import FinishReason
from tests.support.ctl import PACED, Ctl
from tests.support.frontend import RawFrontend

pytestmark = pytest.mark.e2e
SETTINGS = ("--set", f"executor={PACED}", "--set", "num_gpu_blocks=512", "--timeout", "60s")


def test_join_abort_and_a_held_restart(ctl: Ctl) -> None:
    with RawFrontend() as frontend:
        model = str(ctl.make_model())
        starting = ctl.popen("start", "t", "--join", frontend.handshake_address, "--model", model, "--hold", *SETTINGS,
                             PACED_STEP_MS="20")  # fmt: skip
        frontend.wait_ready(60)
        out, err = starting.communicate(timeout=60)
        assert starting.returncode == 0, out + err
        page = ctl.ok("status", "t").out
        assert f"frontend         {frontend.handshake_address}, 1 client" in page
        for name in ("cmpl-abc-0-8a1f0945", "cmpl-abc-1-8a1f0946", "cmpl-xyz-0-8a1f0947"):
            frontend.add(name, [3, 4, 5], max_tokens=120, ignore_eos=True)
        frontend.pump(lambda: all(one.token_ids for one in frontend.generations.values()))
        assert ctl.ok("abort", "-e", "t", "cmpl-xyz").out.startswith("cmpl-xyz-0-8a1f0947  aborted")
        assert frontend.collect("cmpl-xyz-0-8a1f0947").finish_reason == FinishReason.ERROR
        restarting = ctl.popen("restart", "t", "--hold", "--hold-limit", "50s")
        for generation in frontend.collect_all(["cmpl-abc-0-8a1f0945", "cmpl-abc-1-8a1f0946"], 60):
            assert generation.finish_reason == FinishReason.LENGTH and len(generation.token_ids) == 120
        out, err = restarting.communicate(timeout=60)
        assert restarting.returncode == 0, out + err
        ctl.ok("stop", "t")
        frontend.wait_dead(10)


def test_what_is_recorded_is_joined_again(ctl: Ctl) -> None:
    with RawFrontend() as frontend:
        first = ctl.popen(
            "start", "t", "--join", frontend.handshake_address, "--model", str(ctl.make_model()), *SETTINGS
        )
        frontend.wait_ready(60)
        assert first.wait(60) == 0
        ctl.ok("stop", "t")
        address = frontend.handshake_address
    with RawFrontend(handshake=address) as frontend:
        again = ctl.popen("start", "t")
        frontend.wait_ready(60)
        assert again.wait(60) == 0


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--engine", "other"], 2, "one of enginectl, vllm"),
        (["--join", "localhost:1"], 2, "is no address"),
        (["--join", "tcp://10.0.0.7:13345"], 6, "pass in clear"),
        (["--hold-sampled", "maybe"], 2, "one of resume, fail"),
        (["--hold-limit", "soon"], 2, "soon"),
        (["--", "something", "else"], 2, "neither a command"),
        (["--", "vllm", "serve", "m", "--nnodes", "2"], 2, "cannot be split"),
        (["--engine", "vllm", "--python", sys.executable], 8, "vLLM is not installed"),
        (["--engine", "vllm", "--set", "kv_memory=1GiB"], 2, "vLLM has no setting"),
    ],
)
def test_what_cannot_be_is_said_before_anything_starts(ctl: Ctl, words: list[str], code: int, text: str) -> None:
    result = ctl("start", "t", "--model", str(ctl.make_model()), *words)
    assert result.code == code and text in result.err, result.err
    assert not (ctl.base / "state" / "engines" / "t" / "record.json").exists()


def test_a_port_that_nobody_answers_is_named_at_the_deadline(ctl: Ctl) -> None:
    result = ctl("start", "t", "--model", str(ctl.make_model()), "--join", "tcp://127.0.0.1:9", *SETTINGS[:4],
                 "--timeout", "2s")  # fmt: skip
    assert result.code == 124 and "phase 'handshake'" in result.err
    assert "127.0.0.1:9, not there yet" in ctl.ok("status", "t").out
