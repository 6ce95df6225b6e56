from __future__ import annotations

import json
from pathlib import Path

import pytest

from enginectl.errors import UsageError
from enginectl.tokens import Detokenizer, StopStrings, load_texts, load_tokenizer, parse_ids
from tests.support.tiny_model import make_tiny_model

SAMPLE = "naïve 😀 and the world — 日本語 loll wörld 👩‍👩‍👧 " * 6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("m") / "tiny")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_streamed_text_is_the_text_and_never_half_a_character(model: Path, size: int) -> None:
    tokenizer = load_tokenizer(model)
    ids = tokenizer.encode(SAMPLE, add_special_tokens=False).ids
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.add(ids[i : i + size]) for i in range(0, len(ids), size)]
    assert not any("�" in piece for piece in pieces)
    assert "".join(pieces) + detokenizer.end() == tokenizer.decode(ids)


def test_what_never_becomes_a_character_is_not_held_for_ever(model: Path) -> None:
    tokenizer = load_tokenizer(model)
    lone = tokenizer.encode("😀", add_special_tokens=False).ids[:1]
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.add(lone) for _ in range(200)) + detokenizer.end()
    assert text.count("�") > 100


def fed(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    stopper = StopStrings(stops)
    text = "".join(stopper.add(piece) for piece in pieces)
    return text + stopper.end(), stopper.matched


@pytest.mark.parametrize(
    ("stops", "pieces", "text", "matched"),
    [
        (["END"], ["abc", "EN", "D", "more"], "abc", "END"),
        (["END"], ["abEN", "C"], "abENC", None),
        (["END"], ["abEN"], "abEN", None),
        (["b", "abc"], ["xabc"], "x", "abc"),
        (["cd", "b"], ["abcd"], "a", "b"),
        ([], ["all", " of it"], "all of it", None),
        (["", "x"], ["axb"], "a", "x"),
        (["aab"], ["a", "a", "a", "b"], "a", "aab"),
    ],
)
def test_stop_strings(stops: list[str], pieces: list[str], text: str, matched: str | None) -> None:
    assert fed(stops, pieces) == (text, matched)


def test_text_that_cannot_begin_a_stop_string_goes_out_at_once() -> None:
    stopper = StopStrings(["END"])
    assert stopper.add("hello ") == "hello "
    assert stopper.add("E") == ""
    assert stopper.add("x") == "Ex"


def test_ids_are_read_and_refused() -> None:
    assert parse_ids("[1, 2,3 4]") == [1, 2, 3, 4]
    assert parse_ids("") == []
    with pytest.raises(UsageError):
        parse_ids("1 two")


def test_small_files_say_how_a_text_ends(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "bos_token": {"content": "<s>"},
                "eos_token": "</s>",
                "chat_template": [{"name": "tool", "template": "T"}, {"name": "default", "template": "D"}],
            }
        )
    )
    texts = load_texts(tmp_path)
    assert (texts.eos_token_id, texts.other_stop_ids) == (2, (7,))
    assert (texts.bos_token, texts.eos_token, texts.chat_template) == ("<s>", "</s>", "D")
    (tmp_path / "tokenizer_config.json").write_text("{broken")
    (tmp_path / "chat_template.jinja").write_text("J")
    assert load_texts(tmp_path).chat_template == "J"


def test_a_broken_tokenizer_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)
