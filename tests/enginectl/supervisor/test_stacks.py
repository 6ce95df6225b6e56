"""Stacks by signal, of an engine that does not answer any more: everybody who asks at once gets them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from enginectl.errors import Deadline
from enginectl.supervisor import stacks
from enginectl.supervisor.kinds import KINDS
from enginectl.supervisor.loop import Future, Loop


class Daemon:
    """With an engine that writes its stacks a while after each signal."""

    def __init__(self, after_s: float) -> None:
        self.loop = Loop()
        self.kind = KINDS["enginectl"]
        self.health = None
        self.engine_meter = SimpleNamespace(pid=os.getpid())
        self.child: Any = SimpleNamespace(pid=os.getpid(), exited=Future(), send=self._send)
        self.log_taps: list[Callable[[bytes], None]] = []
        self._after_s = after_s

    def _send(self, number: signal.Signals) -> None:
        assert number == signal.SIGUSR2
        self.loop.after(self._after_s, self._write)

    def _write(self) -> None:
        for tap in self.log_taps:
            tap(b"Thread 0x1\n")

    def collect(self, *begin_s: float, timeout_s: float = 5.0) -> list[str | Deadline]:
        """What each gets who begins so much later."""
        found: list[str | Deadline] = []

        async def ask(delay_s: float) -> None:
            await self.loop.sleep(delay_s)
            try:
                found.append(await stacks.collect_stacks(self, timeout_s))  # type: ignore[arg-type]
            except Deadline as error:
                found.append(error)
            if len(found) == len(begin_s):
                self.loop.stop()

        for delay_s in begin_s:
            self.loop.spawn(ask(delay_s))
        self.loop.run()
        return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "QUIET_S", 0.02)


def test_two_who_ask_at_once_both_get_them() -> None:
    """As when a stall saves its evidence and somebody looks at the same moment."""
    daemon = Daemon(after_s=0.03)
    found = daemon.collect(0.0, 0.01)
    assert ["Thread" in str(text) for text in found] == [True, True]
    assert daemon.log_taps == []


def test_without_a_word_it_is_a_deadline_and_nobody_reads_along_any_more() -> None:
    daemon = Daemon(after_s=60.0)
    (error,) = daemon.collect(0.0, timeout_s=0.05)
    assert isinstance(error, Deadline)
    assert daemon.log_taps == []
