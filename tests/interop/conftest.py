from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.peer import ENVIRONMENT, venv
from tests.support.ctl import Ctl


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/interop/" in str(item.path):
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.timeout(1800))
            if venv() is None:
                item.add_marker(pytest.mark.skip(reason="no venv of the peer: tests/interop/make_venv.sh"))


@pytest.fixture(scope="session")
def model() -> Path:
    """The embedded default model, converted; or ENGINECTL_INTEROP_MODEL."""
    given = os.environ.get("ENGINECTL_INTEROP_MODEL")
    if given:
        return Path(given)
    from tests.support.default_model import default_model

    return default_model()


@pytest.fixture(scope="module")
def ctl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ctl]:
    base = tmp_path_factory.mktemp("interop")
    base.chmod(0o700)
    made = Ctl(base, **ENVIRONMENT)
    yield made
    made.close()
