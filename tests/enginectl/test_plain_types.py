from __future__ import annotations

import pytest

from enginectl.plain_types import in_words, value_in_words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("int", "a whole number"),
        ("int | None", "a whole number or null"),
        ("list[str] | None", "a list of texts or null"),
        ("list[dict[str, int | float]]", "a list"),
        ("dict[str, int | None] | bool", "a map or true or false"),
        ("tuple[int, ...]", "a list of whole numbers"),
        ("Fancy", "Fancy"),
    ],
)
def test_types_are_said_in_plain_words(name: str, words: str) -> None:
    assert in_words(name) == words


def test_values_are_shown_as_they_were_given_and_never_at_length() -> None:
    assert [value_in_words(value) for value in (None, True, 7, 0.5, "x", [1], {"a": 1})] == [
        "null", "true", "7", "0.5", "'x'", "[1]", "{'a': 1}",
    ]  # fmt: skip
    assert len(value_in_words("x" * 1000)) < 80 and len(value_in_words([1] * 1000)) <= 60
