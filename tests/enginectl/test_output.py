from __future__ import annotations

import io
import json

import pytest
from msgspec import Raw

from engine.messages import EngineCoreReadyResponse
from enginectl.control import EngineView
from enginectl.errors import CtlError, Refused, StartFailed
from enginectl.output import Output, error_lines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def ascii_stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii")


ERROR = StartFailed(
    "engine 'big' failed in phase 'kv cache' after 41s (exit 1)",
    cause="KV cache needs 4.26 GiB\n4.25 GiB is free",
    try_=["enginectl start big --set max_model_len=130752", "--set kv_memory=5GiB"],
    see=["enginectl logs big -n 50", "enginectl help E1203"],
)


def test_an_error_reads_as_in_the_manual() -> None:
    assert error_lines(ERROR) == [
        "error[E1203]: engine 'big' failed in phase 'kv cache' after 41s (exit 1)",
        "  cause: KV cache needs 4.26 GiB",
        "         4.25 GiB is free",
        "  try:   enginectl start big --set max_model_len=130752",
        "         or --set kv_memory=5GiB",
        "  see:   enginectl logs big -n 50   ·   enginectl help E1203",
    ]


def test_json_is_one_document_on_stdout_and_words_stay_on_stderr() -> None:
    stdout, stderr = io.StringIO(), io.StringIO()
    out = Output(stdout, stderr, json=True)
    out.text("for people")
    out.say("progress")
    out.document("Engine", {"name": "qwen", "schema": "lies"})
    out.document("Engine", {"name": "again"})
    assert json.loads(stdout.getvalue()) == {"schema": "enginectl/v1", "kind": "Engine", "name": "qwen"}
    assert stderr.getvalue() == "progress\n"


def test_text_is_the_other_way_round() -> None:
    stdout, stderr = io.StringIO(), io.StringIO()
    out = Output(stdout, stderr)
    out.document("Engine", {"name": "qwen"})
    out.text("qwen  ready")
    assert (stdout.getvalue(), stderr.getvalue()) == ("qwen  ready\n", "")


def test_a_failure_is_a_document_with_every_field() -> None:
    stdout = io.StringIO()
    Output(stdout, io.StringIO(), json=True).error(CtlError("broken"))
    assert json.loads(stdout.getvalue()) == {
        "schema": "enginectl/v1",
        "kind": "Error",
        "id": "E1000",
        "message": "broken",
        "cause": "",
        "try": [],
        "see": [],
        "exit": 1,
    }


def test_a_stream_ends_with_its_failure_as_a_line() -> None:
    stdout = io.StringIO()
    out = Output(stdout, io.StringIO(), json=True)
    out.line("log", {"text": "a"})
    out.line("log", {"text": "b"})
    out.error(ERROR)
    lines = [json.loads(line) for line in stdout.getvalue().splitlines()]
    assert [(line["type"], line["seq"]) for line in lines] == [("log", 1), ("log", 2), ("error", 3)]
    assert all(line["schema"] == "enginectl/v1" and line["ts"] > 0 for line in lines)
    assert lines[2]["id"] == "E1203"


def test_raw_fields_are_read_not_copied() -> None:
    stdout = io.StringIO()
    ready = EngineCoreReadyResponse(
        max_model_len=8, num_gpu_blocks=1, block_size=16, dtype="float32", kv_events_config=Raw(b"\x81\xa1a\x01")
    )
    Output(stdout, io.StringIO(), json=True).document("Engine", EngineView(name="t", state="idle", ready=ready))
    document = json.loads(stdout.getvalue())
    assert document["ready"]["kv_events_config"] == {"a": 1}
    assert document["kind"] == "Engine"


def test_ascii_streams_get_plain_signs_and_escaped_json() -> None:
    stdout, stderr = ascii_stream(), ascii_stream()
    Output(stdout, stderr).say("  ✔ load weights · done é")
    Output(stdout, stderr, json=True).document("X", {"name": "é😀"})
    stderr.seek(0)
    stdout.seek(0)
    assert stderr.read() == "  ok load weights - done ?\n"
    text = stdout.read()
    assert text.isascii()
    assert json.loads(text)["name"] == "é😀"


def test_live_lines_need_a_terminal_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    pipe = io.StringIO()
    Output(io.StringIO(), pipe).live("moving")
    assert pipe.getvalue() == ""
    terminal = Terminal()
    out = Output(io.StringIO(), terminal)
    out.live("moving")
    out.say("done")
    assert terminal.getvalue() == "\r\x1b[Kmoving\r\x1b[Kdone\n"
    monkeypatch.setenv("TERM", "dumb")
    dumb = Terminal()
    Output(io.StringIO(), dumb).live("moving")
    assert dumb.getvalue() == ""


def answered(monkeypatch: pytest.MonkeyPatch, answer: str) -> Output:
    stdin = Terminal(answer)
    monkeypatch.setattr("sys.stdin", stdin)
    return Output(io.StringIO(), Terminal())


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "no\n", "yep\n"])
def test_the_default_answer_is_no(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    with pytest.raises(Refused):
        answered(monkeypatch, answer).confirm("stop ends 3 requests", yes=False, retry="x --yes")


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_yes_goes_on(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    answered(monkeypatch, answer).confirm("stop ends 3 requests", yes=False, retry="x --yes")


def test_off_a_terminal_only_yes_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    out = Output(io.StringIO(), io.StringIO())
    with pytest.raises(Refused) as caught:
        out.confirm("stop ends 3 requests", yes=False, retry="enginectl stop --yes")
    assert caught.value.exit == 6
    assert caught.value.try_ == ["enginectl stop --yes"]
    out.confirm("stop ends 3 requests", yes=True, retry="")
