from __future__ import annotations

import msgspec
import pytest

from engine.config import FIELDS, EngineConfig, parse_setting
from enginectl import config
from enginectl.settings_help import OPTIONS, SETTINGS


def test_every_setting_and_option_is_explained_and_no_other() -> None:
    assert list(SETTINGS) == list(FIELDS)
    assert set(OPTIONS) == set(config.OPTIONS)
    assert all(one.text.endswith(".") and one.text.isascii() for one in (*SETTINGS.values(), *OPTIONS.values()))


@pytest.mark.parametrize("name", [name for name, meaning in SETTINGS.items() if meaning.values])
def test_the_values_that_are_named_can_be_used(name: str) -> None:
    for text in SETTINGS[name].values:
        msgspec.convert({"model": "m", name: parse_setting(name, text)}, EngineConfig)
