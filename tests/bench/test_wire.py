from __future__ import annotations

import pytest

from bench.wire import poll_ms


@pytest.mark.parametrize(("seconds", "milliseconds"), [(0.0, 1), (-0.1, 1), (0.0004, 1), (0.0011, 2), (0.2, 200)])
def test_a_short_wait_is_a_wait(seconds: float, milliseconds: int) -> None:
    assert poll_ms(seconds) == milliseconds
