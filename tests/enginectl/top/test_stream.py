"""Without a terminal: which output is one, ASCII or not, and what a stream writes a replay can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from enginectl.errors import Unreachable, UsageError
from enginectl.output import out
from enginectl.top.snapshot import Link, Snapshot, from_json, to_json
from enginectl.top.state import Ui
from enginectl.top.stream import load, needs_ascii, print_once
from tests.enginectl.top import samples


@pytest.mark.parametrize(
    ("encoding", "environ", "expected"),
    [
        ("utf-8", {}, False),
        ("utf-8", {"LANG": "en_GB.UTF-8"}, False),
        ("UTF8", {}, False),
        ("ascii", {}, True),
        ("latin-1", {"LANG": "en_GB.UTF-8"}, True),
        ("utf-8", {"LC_ALL": "C"}, True),
        ("utf-8", {"LANG": "POSIX"}, True),
        ("utf-8", {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ("utf-8", {"LC_ALL": "C.UTF-8", "LANG": "C"}, False),
    ],
)
def test_who_gets_ascii(encoding: str, environ: dict[str, str], expected: bool) -> None:
    assert needs_ascii(encoding, environ) == expected


def test_a_snapshot_survives_its_line() -> None:
    before = samples.snapshot(log=("secret line",))
    line = to_json(before)
    assert b"\n" not in line
    assert b"secret" not in line
    after = from_json(line)
    assert after is not None
    assert (after.view, after.requests, after.events, after.link) == (
        before.view,
        before.requests,
        before.events,
        before.link,
    )
    fields = json.loads(line)
    assert fields["schema"] == "enginectl/v1"
    assert {"ts", "seq", "type"} <= fields.keys()


DEEP = b'{"ts":1,"seq":1,"name":"a","x":' + b"[" * 100_000
"""Of a recording that somebody else made."""


def test_a_file_is_read_past_what_is_no_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    good = to_json(samples.snapshot(seq=77))
    path.write_bytes(b"\n".join([good, b"not json", b'{"type":"error","ts":1,"seq":2}', DEEP, good, good[:50]]))
    assert [snapshot.seq for snapshot in load(path)] == [0, 1]


def test_a_useless_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    for name in ("empty", "missing"):
        with pytest.raises(UsageError):
            load(tmp_path / name)
    with pytest.raises(UsageError):
        load(tmp_path)


def test_nothing_to_show_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = Snapshot(ts=1.0, seq=1, name="qwen", link=Link(state="lost", reason="no socket"))
    with pytest.raises(Unreachable) as caught:
        print_once(nothing, Ui(), ascii_only=False)
    assert caught.value.cause == "no socket"
    assert capsys.readouterr().out == ""


def test_once_on_paper(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(out, "json", False)
    print_once(samples.snapshot(), Ui(), ascii_only=True)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) == 120
    assert "step timing" in text
