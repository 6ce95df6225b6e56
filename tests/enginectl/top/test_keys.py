"""Keys from bytes, whole and torn."""

from __future__ import annotations

import pytest

from enginectl.top.keys import KeyReader


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q", ["q"]),
        (b"jk G", ["j", "k", "space", "G"]),
        (b"\r\t\x7f\x03", ["enter", "tab", "backspace", "ctrl-c"]),
        (b"\x1b[A\x1b[B\x1bOC\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1b[5~\x1b[6~\x1b[H\x1b[Z", ["pageup", "pagedown", "home", "backtab"]),
        ("é".encode(), ["é"]),
        (b"\x1b[<35;12;7M\x1b[200~q", ["q"]),
        (b"\x1bq", ["esc", "q"]),
        (b"\xff\xfeq", ["q"]),
        (b"\x01\x02q", ["q"]),
    ],
)
def test_bytes_become_keys(data: bytes, keys: list[str]) -> None:
    assert KeyReader().feed(data) == keys


def test_a_sequence_in_pieces_is_one_key() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.is_waiting
    assert reader.feed(b"[") == []
    assert reader.feed(b"A") == ["up"]
    assert not reader.is_waiting


def test_a_lone_escape_is_a_key_after_silence() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == []
    assert reader.flush() == ["esc"]
    assert reader.flush() == []


def test_a_torn_sequence_vanishes_in_silence() -> None:
    reader = KeyReader()
    reader.feed(b"\x1b[1;")
    assert reader.flush() == []
    assert reader.feed(b"q") == ["q"]


def test_endless_sequences_do_not_pile_up() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b[" + b"1;" * 5000) == []
    assert not reader.is_waiting
