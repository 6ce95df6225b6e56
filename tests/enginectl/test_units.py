from __future__ import annotations

import pytest

from enginectl.errors import UsageError
from enginectl.units import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("2m", 120.0),
        ("1h30m", 5400.0),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("7", 7.0),
        (3, 3.0),
        (" 2M ", 120.0),
        ("1d", 86400.0),
        ("0", 0.0),
    ],
)
def test_durations_take_units(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5x", "-3", "-1s", "nan", "inf", "5 minutes", "m5", "1m!"])
def test_what_is_no_duration_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert repr(text) in caught.value.message
    assert caught.value.exit == 2


@pytest.mark.parametrize("text", ["1e300", "366d", "9" * 400 + "h", 1e10])
def test_what_nobody_waits_for_is_refused(text: str | float) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)
    assert parse_duration("365d") == 365 * 86400
