from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from engine.reports import ArgInfo, UtilityInfo
from enginectl.errors import NoSuchUtility, UsageError
from enginectl.utility_args import arguments, bind, find_utility, loose, signature

FALSE = Raw(msgspec.msgpack.encode(False))
RESET = UtilityInfo(
    name="reset",
    args=[ArgInfo(name="running", type="bool", default=FALSE), ArgInfo(name="connector", type="bool", default=FALSE)],
)
SLEEP = UtilityInfo(
    name="sleep",
    args=[
        ArgInfo(name="level", type="int", required=True),
        ArgInfo(name="mode", type="abort|wait|keep", choices=["abort", "wait", "keep"]),
        ArgInfo(name="factor", type="float"),
        ArgInfo(name="tags", type="list[str] | None"),
        ArgInfo(name="any", type="Raw"),
    ],
)


def values(packed: list[Raw]) -> list[Any]:
    return [msgspec.msgpack.decode(one) for one in packed]


def test_words_are_typed_in_order_and_by_name() -> None:
    assert values(bind(SLEEP, ["2", "keep"], ["tags=a,b", "factor=0.5"])) == [2, "keep", 0.5, ["a", "b"]]
    assert values(bind(SLEEP, ["0x10"], ['any={"a":1}']))[4] == {"a": 1}
    assert values(bind(SLEEP, ["1", "keep", "1", "null"], [])) == [1, "keep", 1.0, None]
    assert values(bind(RESET, [], ["connector=true"])) == [False, True]
    assert bind(RESET, [], []) == []


def test_json_gives_all_at_once() -> None:
    assert values(bind(SLEEP, [], [], [1, "wait"])) == [1, "wait"]
    assert values(bind(SLEEP, [], [], {"level": 1, "tags": ["x"]}))[3] == ["x"]
    assert bind(RESET, [], [], []) == []


@pytest.mark.parametrize(
    ("words", "named", "given", "said"),
    [
        ([], [], None, "level is missing"),
        (["x"], [], None, "sleep: level must be a whole number, not 'x'"),
        (["1", "kep"], [], None, "did you mean 'keep'"),
        (["1", "keep", "much"], [], None, "factor must be a number, not 'much'"),
        (["1"], ["level=2"], None, "given twice"),
        (["1"], ["modus=keep"], None, "did you mean 'mode'"),
        (["1"], ["mode"], None, "key=value"),
        (["1"] * 6, [], None, "at most 5"),
        (["1"], [], [1], "excludes"),
        ([], [], 7, "list or a map"),
        ([], [], {"leve": 1}, "'level'"),
        ([], [], [1] * 6, "at most 5"),
        ([], [], ["1"], "level must be a whole number, not '1'"),
        ([], [], [True], "level must be a whole number, not true"),
        ([], [], [None], "level must be a whole number, not null"),
        ([], [], [1, "keep", 1, ["a", 5]], "tags must be a list of texts or null, not ['a', 5]"),
        ([], [], [1, 5], "mode must be one of abort, wait, keep, not 5"),
        ([str(2**64)], [], None, "level: whole numbers have at most 64 bits"),
        ([], [], [2**64], "level: whole numbers have at most 64 bits"),
        (["1"], [f"any=[{-(2**64)}]"], None, "any: whole numbers have at most 64 bits"),
        (["1"], ["any=\udcff"], None, "any: the text is not UTF-8"),
        (["1"], ["tags=[oops"], None, "tags must be a list of texts or null"),
    ],
)
def test_mistakes_name_the_argument(words: list[str], named: list[str], given: object, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind(SLEEP, words, named, given)
    assert said in caught.value.message


def test_booleans() -> None:
    assert values(bind(RESET, ["yes", "0"], [])) == [True, False]
    with pytest.raises(UsageError, match="running must be true or false, not 'maybe'"):
        bind(RESET, ["maybe"], [])


def test_unknown_utilities_suggest() -> None:
    with pytest.raises(NoSuchUtility) as caught:
        find_utility([RESET, SLEEP], "sleap")
    assert "'sleep'" in caught.value.message
    assert caught.value.exit == 4


def test_what_json_gives_is_taken_when_it_fits() -> None:
    assert values(bind(SLEEP, [], [], [2**64 - 1, "wait", 1, None, {"deep": [1]}])) == [
        2**64 - 1,
        "wait",
        1,
        None,
        {"deep": [1]},
    ]
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(UsageError, match="nested too deep"):
        bind(SLEEP, [], [], {"level": 1, "any": deep})


def test_signature_and_loose_values() -> None:
    assert arguments(RESET, defaults=False) == "[running: bool] [connector: bool]"
    assert signature(RESET) == "reset [running: bool = false] [connector: bool = false]"
    assert [loose(word) for word in ("1", "true", "abc", "[1]")] == [1, True, "abc", [1]]
