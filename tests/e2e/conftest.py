"""The real commands against real processes, each test or module with directories of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ctl import Ctl


@pytest.fixture
def ctl(tmp_path: Path) -> Iterator[Ctl]:
    """The command; whatever it starts is gone afterwards."""
    command = Ctl(tmp_path)
    yield command
    command.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ctl]:
    """The command with one engine `t` that is ready: null weights, 10 ms a step. Tests leave it as they found it."""
    command = Ctl(tmp_path_factory.mktemp("served"), PACED_STEP_MS="10")
    try:
        command.start("t")
        yield command
    finally:
        command.close()
