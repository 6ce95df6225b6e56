"""What a signal means while something goes on already."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from enginectl.supervisor import signals
from enginectl.supervisor.events import EventLog
from enginectl.supervisor.stopping import Stop


@pytest.mark.parametrize(("keeps_supervisor", "asked"), [(True, ["signal INT"]), (False, [])])
def test_the_first_interrupt_during_a_restart_is_a_stop_and_one_during_a_stop_hurries_it(
    monkeypatch: pytest.MonkeyPatch, keeps_supervisor: bool, asked: list[str]
) -> None:
    begun: list[str] = []
    hurried: list[bool] = []

    def begin(daemon: Any, **options: Any) -> None:
        begun.append(options["by"])

    monkeypatch.setattr(signals, "begin_stop", begin)
    stop = Stop(5.0, 1.0, by="restart" if keeps_supervisor else "stop", keeps_supervisor=keeps_supervisor)
    monkeypatch.setattr(stop, "hurry", lambda: hurried.append(True))
    daemon = SimpleNamespace(
        events=EventLog(lambda line: None), stopping=stop,
        settings=SimpleNamespace(stop_grace_s=5.0, stop="drain", term_s=1.0),
    )  # fmt: skip
    signals.on_signal(daemon, signal.SIGINT)  # type: ignore[arg-type]
    assert (begun, hurried) == (asked, [] if asked else [True])
