"""Each option of a verb has a variable of its own: used, named in errors, weaker than what is typed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ctl import Ctl

pytestmark = pytest.mark.e2e


def test_a_flag_by_its_variable(ctl: Ctl) -> None:
    plain, asked = ctl.ok("config", "show").out, ctl.ok("config", "show", "--origin").out
    assert plain != asked == ctl.ok("config", "show", ENGINECTL_CONFIG_SHOW_ORIGIN="1").out


@pytest.mark.parametrize(
    "words, variable, value",
    [
        ("requests", "ENGINECTL_REQUESTS_LIMIT", "abc"),
        ("top", "ENGINECTL_TOP_INTERVAL", "9x"),
        ("top", "ENGINECTL_TOP_INTERVAL", "90s"),
    ],
)
def test_a_wrong_value_is_found_where_it_is(ctl: Ctl, words: str, variable: str, value: str) -> None:
    environment: dict[str, Any] = {variable: value}
    refused = ctl(*words.split(), **environment)
    assert refused.code == 2
    assert value in refused.err and f"cause: options come from the environment: {variable}" in refused.err


def test_what_is_typed_is_stronger(ctl: Ctl) -> None:
    assert "duration" not in ctl("top", "--once", "--interval", "1s", ENGINECTL_TOP_INTERVAL="9x").err


def test_one_that_is_mistyped_stops_a_start(ctl: Ctl) -> None:
    refused = ctl("start", "t", ENGINECTL_START_DRYRUN="1")
    assert refused.code == 2
    assert "did you mean ENGINECTL_START_DRY_RUN?" in refused.err
    assert ctl.ok("config", "show", ENGINECTL_TOP_INTERVAL="2s").out
