"""For every test: the directories of the person who runs them are out of reach."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

NATIVE_DIR = Path(__file__).resolve().parents[1] / ".cache" / "enginectl" / "native"
POISON = "/proc/enginectl-tests-must-set-their-own"


@pytest.fixture(scope="session", autouse=True)
def no_real_directories() -> Iterator[None]:
    """A test that forgets to set its own directories fails instead of touching real ones."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ENGINECTL_STATE_DIR", "ENGINECTL_RUNTIME_DIR", "XDG_CONFIG_HOME"):
            patch.setenv(name, POISON)
        # Built once for all tests, whatever cache directory each of them has.
        patch.setenv("ENGINECTL_NATIVE_DIR", str(NATIVE_DIR))
        for name in ("ENGINECTL_ENGINE", "ENGINECTL_OUTPUT", "ENGINECTL_MODEL", "ENGINECTL_CONFIG"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_ignored_signals() -> None:
    """A job in the background, or under nohup, ignores some, and so would all that the tests start."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


REAL_PROCESSES = {"rig", "ctl", "served", "shared"}
"""Fixtures that start engines: whoever uses one is an e2e test, wherever it stands."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if REAL_PROCESSES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.e2e)
