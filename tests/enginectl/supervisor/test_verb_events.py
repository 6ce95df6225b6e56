"""One event for each verb that acts: who, about what, with what outcome."""

from __future__ import annotations

import pwd
import threading
from typing import Any

import pytest

from enginectl.control import ControlRequest
from enginectl.errors import NoSuchUtility
from enginectl.supervisor.events import EventLog
from enginectl.supervisor.handlers import HANDLERS
from enginectl.supervisor.peer import Peer
from enginectl.supervisor.verb_events import LOOKS, TOLD_AT_ONCE, shortened, tell_asked, tell_done


class Session:
    outcome = "done"
    subject = ""

    def __init__(self, verb: str, peer: Peer | None = Peer(77, 4_000_000_000 - 5)) -> None:
        self.request = ControlRequest(id=1, verb=verb, version="0.1.0")
        self.peer_process = peer


def told(session: Any, error: NoSuchUtility | None = None) -> list[str]:
    log = EventLog(lambda line: None)
    tell_asked(log, session)
    tell_done(log, session, error)
    return [event.text for event in log.last(10)]


@pytest.mark.parametrize("verb", sorted(HANDLERS))
def test_what_acts_is_told_once_and_what_looks_never(verb: str) -> None:
    assert len(told(Session(verb))) == (verb not in LOOKS)


def test_an_event_names_the_caller_the_subject_and_the_outcome() -> None:
    session = Session("call")
    session.subject, session.outcome = "ping", "answered in 2 ms"
    assert told(session) == ["call ping by uid 3999999995 pid 77, version 0.1.0: answered in 2 ms"]
    assert told(session, NoSuchUtility("no\nsuch")) == [
        "call ping by uid 3999999995 pid 77, version 0.1.0: E1104 no such"
    ]
    assert told(Session("cordon", peer=None)) == ["cordon by version 0.1.0: done"]


def test_telling_asks_no_directory_service(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(uid: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", look_up)
    assert told(Session("cordon", Peer(77, 4_000_000_001))) == ["cordon by uid 4000000001 pid 77, version 0.1.0: done"]


@pytest.mark.parametrize("verb", sorted(TOLD_AT_ONCE))
def test_what_tells_of_itself_meanwhile_is_told_when_it_is_asked_for(verb: str) -> None:
    assert told(Session(verb))[0].endswith(": asked for")
    assert len(told(Session(verb), NoSuchUtility("no"))) == 2


def test_ids_are_shortened() -> None:
    assert shortened(["cmpl-1-8a1f0945", "x" * 50]) == "cmpl-1, " + "x" * 23 + "…"
    assert shortened([str(n) for n in range(10)]) == "0, 1, 2 and 7 more"
