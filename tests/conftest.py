"""For every test: the directories of the person who runs them are out of reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

POISON = "/proc/enginectl-tests-must-set-their-own"


@pytest.fixture(scope="session", autouse=True)
def no_real_directories() -> Iterator[None]:
    """A test that forgets to set its own directories fails instead of touching real ones."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ENGINECTL_STATE_DIR", "ENGINECTL_RUNTIME_DIR", "XDG_CONFIG_HOME"):
            patch.setenv(name, POISON)
        for name in ("ENGINECTL_ENGINE", "ENGINECTL_OUTPUT", "ENGINECTL_MODEL", "ENGINECTL_CONFIG"):
            patch.delenv(name, raising=False)
        yield
