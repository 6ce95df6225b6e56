"""Text becomes token ids and back, in the command and nowhere else: supervisor and engine see ids only.

Reads tokenizer.json and the small JSON files beside it. Owns no socket."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from enginectl.errors import UsageError
from enginectl.models import ModelUnusable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WINDOW = 64
"""Ids that are decoded together; beyond it the oldest are let go,"""
KEPT = 8
"""but for so many: more than a character has bytes."""
REPLACEMENT = "�"


class ModelTexts(Struct, frozen=True, kw_only=True):
    """What the small files of a model directory say about text."""

    eos_token_id: int | None = None
    other_stop_ids: tuple[int, ...] = ()
    bos_token: str = ""
    eos_token: str = ""
    chat_template: str | None = None


def load_tokenizer(directory: Path) -> Tokenizer:
    """Raises ModelUnusable."""
    from tokenizers import Tokenizer

    file = directory / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise ModelUnusable(f"{file} cannot be used", cause=str(error)) from None


def load_texts(directory: Path) -> ModelTexts:
    """From generation_config.json, config.json and tokenizer_config.json; what is missing stays empty."""
    generation, config = _read(directory / "generation_config.json"), _read(directory / "config.json")
    tokenizer = _read(directory / "tokenizer_config.json")
    ends = _ids(generation.get("eos_token_id")) or _ids(config.get("eos_token_id"))
    return ModelTexts(
        eos_token_id=ends[0] if ends else None,
        other_stop_ids=tuple(ends[1:]),
        bos_token=_token(tokenizer.get("bos_token")),
        eos_token=_token(tokenizer.get("eos_token")),
        chat_template=_template(tokenizer.get("chat_template"), directory),
    )


def _read(file: Path) -> dict[str, object]:
    try:
        value = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    return value if isinstance(value, dict) else {}


def _ids(value: object) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, int) and not isinstance(one, bool)]


def _token(value: object) -> str:
    """A special token as text: itself, or the content of the map that describes it."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else ""


def _template(value: object, directory: Path) -> str | None:
    if isinstance(value, list):  # several by name: the default one
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        value = named.get("default")
    if isinstance(value, str):
        return value
    file = directory / "chat_template.jinja"
    return file.read_text(encoding="utf-8") if file.is_file() else None


def parse_ids(text: str) -> list[int]:
    """`1, 2 3` as ids. Raises UsageError."""
    words = text.replace(",", " ").replace("[", " ").replace("]", " ").split()
    try:
        ids = [int(word) for word in words]
    except ValueError:
        raise UsageError(f"--ids wants token ids as numbers, not {text[:60]!r}") from None
    wrong = next((token for token in ids if not 0 <= token < 2**31), None)
    if wrong is not None:
        raise UsageError(f"--ids: {wrong} is no token id")
    return ids


class Detokenizer:
    """Ids come in, text that is certain goes out: an unfinished character waits for its other bytes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._given = 0
        """Characters of the text of `_ids` that were handed out."""

    def add(self, ids: Sequence[int]) -> str:
        """The text that these ids complete."""
        self._ids.extend(ids)
        text = self._decode()
        new = self._hand_out(text, len(text) - _open_end(text))
        if len(self._ids) > WINDOW:
            self._ids = self._ids[-KEPT:]  # decoding looks at the neighbours only
            text = self._decode()
            self._given = len(text) - _open_end(text)
        return new

    def end(self) -> str:
        """What still waited."""
        text = self._decode()
        return self._hand_out(text, len(text))

    def _decode(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))

    def _hand_out(self, text: str, end: int) -> str:
        new = text[self._given : end]
        self._given = max(self._given, end)
        return new


def _open_end(text: str) -> int:
    """How many characters at the end may be bytes of an unfinished one: at most three come before its last."""
    tail = text[-3:]
    return len(tail) - len(tail.rstrip(REPLACEMENT))


class StopStrings:
    """Text comes in, text before the first stop string goes out; what could begin one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.matched: str | None = None

    def add(self, text: str) -> str:
        """Text that certainly belongs to the answer. Sets `matched` at the first stop string."""
        if self.matched is not None:
            return ""
        self._held += text
        places = [(place, stop) for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            place, self.matched = min(places)
            return self._take(place)
        return self._take(len(self._held) - self._open_end())

    def end(self) -> str:
        return "" if self.matched is not None else self._take(len(self._held))

    def _open_end(self) -> int:
        """Length of the longest end of the text that begins a stop string."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(self._held)), longest, -1):
                if self._held.endswith(stop[:length]):
                    longest = length
                    break
        return longest

    def _take(self, length: int) -> str:
        taken, self._held = self._held[:length], self._held[length:]
        return taken
