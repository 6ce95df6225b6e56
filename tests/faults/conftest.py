from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rig import Rig, rig_in


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with rig_in(tmp_path, monkeypatch) as made:
        yield made
