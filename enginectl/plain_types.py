"""Types of arguments in plain words: `int | None` is what a table says, `a whole number or null` what a person reads.

Pure text."""

from __future__ import annotations

import re

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "bytes": "bytes",
    "None": "null",
    "Raw": "anything",
    "list": "a list",
    "dict": "a map",
    "tuple": "a list",
}
_OF = re.compile(r"^(?P<outer>list|tuple|dict)\[(?P<inner>.+)\]$")
_PLURALS = {"int": "whole numbers", "float": "numbers", "str": "texts", "bool": "trues and falses"}


def in_words(type_name: str) -> str:
    """Of a type as `call --describe` writes it."""
    return " or ".join(_one(option.strip()) for option in _options(type_name))


def _options(type_name: str) -> list[str]:
    """Split at the bars outside of brackets."""
    parts, depth, begin = [], 0, 0
    for place, char in enumerate(type_name):
        depth += (char == "[") - (char == "]")
        if char == "|" and depth == 0:
            parts.append(type_name[begin:place])
            begin = place + 1
    return [*parts, type_name[begin:]]


def _one(option: str) -> str:
    nested = _OF.match(option)
    if nested is None:
        return WORDS.get(option, option)
    outer = WORDS[nested["outer"]]
    inner = nested["inner"].removesuffix(", ...")
    return f"{outer} of {_PLURALS[inner]}" if inner in _PLURALS else outer


def value_in_words(value: object) -> str:
    """What somebody gave, as they would call it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value if len(value) <= 60 else value[:57] + "...")
        case _:
            shown = str(value)
            return shown if len(shown) <= 60 else shown[:57] + "..."
