"""What a key that changes something says at its end."""

from __future__ import annotations

import pytest

from enginectl.errors import WrongState
from enginectl.top import actions
from enginectl.top.state import Effect
from tests.support.wait import wait_until


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (WrongState("it is draining"), "! drain: it is draining"),
        (OSError("disk full"), "! drain: disk full"),
        (ValueError("no such thing"), "! drain: ValueError: no such thing"),
    ],
)
def test_whatever_goes_wrong_is_one_line(error: Exception, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(effect: Effect, name: str) -> str:
        raise error

    said: list[str] = []
    monkeypatch.setattr(actions, "perform", fail)
    actions.begin(Effect("drain"), "t", said.append)
    wait_until(lambda: said, 10.0, "the line")
    assert said == [text]
