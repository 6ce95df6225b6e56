"""`start --join`, `--engine`, `--` and `restart --hold` as they are typed."""

from __future__ import annotations

import http.client
import signal
import socket
import sys
from pathlib import Path

import pytest

from engine.messages import FinishReason
from enginectl.identity import is_alive
from tests.support.ctl import PACED, ROOT, Ctl
from tests.support.frontend import RawFrontend
from tests.support.ports import kept_address
from tests.support.wait import wait_until

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
    with kept_address() as address:
        with RawFrontend(handshake=address) as frontend:
            first = ctl.popen("start", "t", "--join", address, "--model", str(ctl.make_model()), *SETTINGS)
            frontend.wait_ready(60)
            assert first.wait(60) == 0
            ctl.ok("stop", "t")
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


def fake_vllm(folder: Path) -> Path:
    """A `vllm` with its interpreter beside it, which has a stand-in for the package."""
    folder.mkdir()
    python, program = folder / "python", folder / "vllm"
    peer = ROOT / "tests" / "support" / "fake_peer"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{peer}:{ROOT}" exec {sys.executable} "$@"\n')
    program.write_text(f'#!/bin/sh\nexec {python} -m vllm.entrypoints.cli.main "$@"\n')
    for path in (python, program):
        path.chmod(0o755)
    return program


def whole_command(ctl: Ctl) -> tuple[int, list[str]]:
    """(its HTTP port, its words)"""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    return port, [str(fake_vllm(ctl.base / "bin")), "serve", str(ctl.make_model()), "--port", str(port)]


def health(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_the_ready_block_of_a_whole_command_says_where_it_serves(ctl: Ctl) -> None:
    port, command = whole_command(ctl)
    page = ctl.ok("start", "t", "--", *command).out
    assert "ready in" in page and f"serves           http://127.0.0.1:{port}" in page
    assert health(port) == 200
    ctl.ok("stop", "t")
    assert health(port) == 0


def test_a_whole_command_in_the_foreground_as_a_container_runs_it(ctl: Ctl) -> None:
    port, command = whole_command(ctl)
    running = ctl.popen("start", "t", "--foreground", "--", *command)
    wait_until(lambda: health(port) == 200, 60.0, "it serves")
    wait_until(lambda: ctl("wait", "t", "--for", "ready", "--timeout", "20s").code == 0, 30.0, "ready")
    assert f"serves           http://127.0.0.1:{port}" in ctl.ok("status", "t").out
    known = ctl.processes()
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0, out + err
    assert health(port) == 0 and not any(is_alive(who) for who in known)
