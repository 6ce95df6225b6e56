from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.ctl import Ctl
from tests.support.tiny_model import make_tiny_model
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
GREEDY = ("--temperature", "0")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ctl]:
    """One engine `t` that computes: the tiny model with random weights."""
    command = Ctl(tmp_path_factory.mktemp("real"))
    make_tiny_model(command.model)
    try:
        command.ok("start", "t", "--model", str(command.model), "--set", "num_gpu_blocks=512", "--set", "threads=1")
        yield command
    finally:
        command.close()


def test_text_is_streamed_and_its_figures_go_to_stderr(real: Ctl) -> None:
    result = real.ok("generate", "the world", "--max-tokens", "24", *GREEDY)
    document = real.ok("generate", "the world", "--max-tokens", "24", *GREEDY, "-o", "json").document
    assert result.out.rstrip("\n") == document["text"].rstrip("\n")
    assert (len(document["token_ids"]), document["finish_reason"]) == (24, "length")
    assert "24 tokens in" in result.err
    assert document["prompt_tokens"] > 0


def test_the_prompt_may_come_from_stdin(real: Ctl) -> None:
    argument = real.ok("generate", "the world", "--max-tokens", "8", *GREEDY).out
    assert real.ok("generate", "-", "--max-tokens", "8", *GREEDY, stdin="the world").out == argument
    assert real.ok("generate", "--max-tokens", "8", *GREEDY, stdin="the world").out == argument


def test_ids_in_and_out(real: Ctl) -> None:
    result = real.ok("generate", "--ids", "5, 6,7", "--max-tokens", "6", *GREEDY)
    ids = [int(word) for word in result.out.split()]
    assert len(ids) == 6
    document = real.ok("generate", "--ids", "5 6 7", "--max-tokens", "6", *GREEDY, "-o", "json").document
    assert (document["token_ids"], document["text"]) == (ids, None)
    assert real("generate", "--ids", "5 x").code == 2
    assert real("generate", "--ids", str(2**64)).code == 2


def test_a_stop_string_ends_it_before_that_text(real: Ctl) -> None:
    whole = real.ok("generate", "the world", "--max-tokens", "40", *GREEDY, "-o", "json").document["text"]
    middle = whole[len(whole) // 2 : len(whole) // 2 + 2]
    document = real.ok("generate", "the world", "--max-tokens", "40", *GREEDY, "--stop", middle, "-o", "json").document
    assert document["text"] == whole[: whole.index(middle)]
    assert (document["finish_reason"], document["stop_reason"]) == ("stop", middle)
    wait_until(lambda: real.requests() == [], 15.0, "its request gone")


def test_same_seed_same_text(real: Ctl) -> None:
    args = ("generate", "the world", "--max-tokens", "12", "--seed", "7", "--top-p", "0.9", "-o", "json")
    first, second = (real.ok(*args).document["token_ids"] for _ in range(2))
    assert first == second


def test_sampling_flags_reach_the_engine(real: Ctl) -> None:
    document = real.ok(
        "generate", "the world", "--max-tokens", "5", "--logit-bias", "9=100", *GREEDY, "--logprobs", "2", "-o", "json"
    ).document
    assert document["token_ids"] == [9] * 5
    assert [entry["token_id"] for entry in document["logprobs"]] == [9] * 5
    assert len(document["logprobs"][0]["top"]) == 2
    stopped = real.ok("generate", "the world", "--logit-bias", "9=100", "--stop-token-id", "9", "-o", "json").document
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", 9)


@pytest.mark.parametrize(
    "args",
    [
        ["--top-p", "0"],
        ["--min-tokens", "9", "--max-tokens", "3"],
        ["--repetition-penalty", "0"],
        ["--logit-bias", "x=1"],
        ["--max-tokens", "0"],
        *[
            [option, value]
            for option in ("--temperature", "--top-p", "--min-p", "--presence-penalty", "--repetition-penalty")
            for value in ("nan", "inf")
        ],
        ["--frequency-penalty", "-2.1"],
        ["--top-k", "-2"],
        ["--logit-bias", "5=nan"],
        ["--logit-bias", f"{2**70}=1"],
        *[
            [option, str(2**64)]
            for option in ("--max-tokens", "--min-tokens", "--seed", "--priority", "--stop-token-id", "--logprobs")
        ],
    ],
)
def test_impossible_sampling_is_a_usage_error(real: Ctl, args: list[str]) -> None:
    refused = real("generate", "x", *args)
    assert (refused.code, args[0] in refused.err) == (2, True), refused.err


def test_what_the_engine_refuses_is_its_error(real: Ctl) -> None:
    result = real("generate", "--ids", "99999", "-o", "json")
    assert result.code == 1
    assert result.document["id"] == "E1303"
    assert "99999" in result.document["message"] + result.document["cause"]
    assert real("generate", "").code == 2


def test_json_lines(real: Ctl) -> None:
    lines = [
        json.loads(line)
        for line in real.ok("generate", "the world", "--max-tokens", "6", "--stream", "-o", "json").out.splitlines()
    ]
    assert lines[-1]["type"] == "end"
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert "".join(line["text"] for line in lines[:-1]) == lines[-1]["text"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_aborts_just_that_request(served: Ctl, number: signal.Signals, code: int) -> None:
    victim, other = served.generate(), served.generate()
    items = served.wait_running(2)
    victim.send_signal(number)
    victim.communicate(timeout=15)
    assert victim.returncode == code
    left = wait_until(lambda: one if len(one := served.requests()) == 1 else [], 15.0, "one request left")
    assert left[0]["id"] in {item["id"] for item in items}
    served.ok("abort", "--all", "--yes")
    other.communicate(timeout=15)


@pytest.mark.parametrize(("act", "undo"), [("pause", "resume"), ("sleep", "wake")])
def test_what_it_waits_for_is_said_once_with_what_helps(served: Ctl, act: str, undo: str) -> None:
    served.ok(act)
    child = served.popen("generate", "the world", "--max-tokens", "2")
    said = child.stderr.readline()  # type: ignore[union-attr]
    assert said.startswith("waiting: t is ") and f"enginectl {undo} t" in said
    served.ok(undo)
    _, rest = child.communicate(timeout=20)
    assert (child.returncode, "waiting" in rest) == (0, False)


def test_a_killed_caller_leaves_no_request(served: Ctl) -> None:
    child = served.generate()
    served.wait_running(1)
    child.kill()
    child.communicate(timeout=10)
    wait_until(lambda: served.requests() == [], 15.0, "its request gone")


def test_chat_takes_one_turn_off_a_terminal(real: Ctl) -> None:
    said = real.ok("chat", "--max-tokens", "8", "--temperature", "0", stdin="hello")
    document = real.ok("chat", "hello", "--max-tokens", "8", "--temperature", "0", "-o", "json").document
    assert said.out.rstrip("\n") == document["text"].rstrip("\n")
    assert document["prompt_tokens"] > 5
    assert real("chat", stdin="").code == 2


def test_chat_takes_its_commands_itself(served: Ctl) -> None:
    lines = "/help", "/hepl", "/reset", "/exit"
    said = on_a_terminal(served, "chat", typed="".join(f"{line}\n" for line in lines))
    assert "talking with t" in said and "/exit   end" in said
    assert "no command /hepl; /help lists them" in said and "forgotten" in said
    assert "tok/s" not in said  # nothing of it went to the model


def on_a_terminal(ctl: Ctl, *words: str, typed: str) -> str:
    """What a terminal shows of a command to its end."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "enginectl", *words],
        stdin=theirs, stdout=theirs, stderr=theirs, env=ctl.env | {"TERM": "dumb"}, cwd=ctl.base,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, typed.encode())
    said = b""
    with contextlib.suppress(OSError):  # EIO: nobody holds the other end any more
        while piece := os.read(ours, 4096):
            said += piece
    os.close(ours)
    assert child.wait(20) == 0
    return said.decode()
