"""Settings: sizes, typed values, refusals that name the value and the nearest setting."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig, parse_setting, parse_size
from engine.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GiB", 2**30), ("512m", 512 * 2**20), ("1.5 GiB", 3 * 2**29), ("2GB", 2 * 10**9), ("4096", 4096), (7, 7)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 parsec", "1e9", "0x10"])
def test_what_is_not_a_size_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(ConfigError, match="not a size"):
        parse_size(text)


def test_settings_are_typed() -> None:
    assert parse_setting("max-num-seqs", "8") == 8
    assert parse_setting("enable_prefix_caching", "false") is False
    assert parse_setting("kv_memory", "1GiB") == 2**30


def test_an_unknown_setting_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean max_num_seqs"):
        parse_setting("max_num_seq", "8")


def test_a_wrong_type_names_the_setting() -> None:
    with pytest.raises(ConfigError, match="max_num_seqs='many'"):
        parse_setting("max_num_seqs", "many")


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "float8"},
        {"executor": "gpu"},
        {"max_num_seqs": 0},
        {"block_size": -1},
        {"max_model_len": 0},
        {"threads": 0},
        {"kv_memory": 0},
    ],
)
def test_impossible_values_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        EngineConfig(model="m", **wrong)  # type: ignore[arg-type]
