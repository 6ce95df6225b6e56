"""What an external frontend asked for while its engine is there, replaced, or gone: one answer each, to who asked."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from engine import codec
from engine.messages import (
    ABORTED_BY_OPERATOR,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    SamplingParams,
    UtilityCall,
)
from enginectl.errors import CtlError, EngineDied
from enginectl.supervisor import traffic as module
from enginectl.supervisor.events import EventLog
from enginectl.supervisor.inflight import InflightTable
from enginectl.supervisor.kinds import KINDS
from enginectl.supervisor.loop import Loop
from enginectl.supervisor.traffic import Traffic


class Relay:
    """`sent`: call ids that reached the engine. `fails`: of those, which find it gone."""

    def __init__(self) -> None:
        self.seats = [SimpleNamespace(index=0, is_own=False), SimpleNamespace(index=1, is_own=True)]
        self.own = self.seats[1]
        self.sent: list[int] = []
        self.fails: set[int] = set()

    def send(self, seat: Any, frames: list[bytes]) -> None:
        call_id = int(frames[0])
        if call_id in self.fails:
            raise EngineDied("the engine is not connected")
        self.sent.append(call_id)

    def answered_call(self, seat: Any, frames: list[bytes]) -> int:
        return int(frames[0])


class Rig:
    """A Traffic with one client. `failed`: the calls that it heard a failure of, in order."""

    def __init__(self) -> None:
        self.relay = Relay()
        self.events = EventLog(lambda line: None)
        self.loop, self.inflight = Loop(), InflightTable()
        self.daemon = SimpleNamespace(
            loop=self.loop,
            relay=self.relay,
            kind=KINDS["enginectl"],
            inflight=self.inflight,
            events=self.events,
            api=None,
            book=SimpleNamespace(on_add=lambda now: None),
            check_uncordoned=lambda: None,
            check_admits=lambda: None,
        )
        self.traffic = Traffic(self.daemon)  # type: ignore[arg-type]
        self.traffic.to_client = self._hear
        self.failed: list[int] = []

    def _hear(self, client: int, frames: list[bytes]) -> None:
        message = codec.decode_outputs(frames, None)
        assert isinstance(message, EngineCoreOutputs) and message.utility_output is not None
        assert message.utility_output.failure_message
        self.failed.append(message.utility_output.call_id)

    def call(self, call_id: int) -> None:
        self.traffic.call(self.relay.seats[0], UtilityCall(0, call_id, "ping", []), [str(call_id).encode()])  # type: ignore[arg-type]

    def add(self, name: str, **sampling: object) -> None:
        request = EngineCoreRequest(name, [3, 4], sampling_params=SamplingParams(max_tokens=9, **sampling))  # type: ignore[arg-type]
        self.inflight.add(request)
        self.traffic.ledger.add(name, 0, [bytes(frame) for frame in codec.encode_request(request)])

    def told(self) -> list[str]:
        return [event.text for event in self.events.last(100)]

    def hold(self) -> None:
        self.traffic.begin_hold(60.0, "resume")

    def is_orphaned(self, call_id: int) -> bool:
        return self.traffic.is_orphaned(self.relay.seats[0], [str(call_id).encode()])  # type: ignore[arg-type]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_what_was_never_sent_is_nobodys_orphan(rig: Rig) -> None:
    rig.call(1)
    rig.hold()
    rig.call(2)
    rig.traffic.client_gone()
    assert rig.is_orphaned(1) and not rig.is_orphaned(2)
    rig.traffic.engine_ended("died")
    rig.traffic.engine_up()
    assert (rig.relay.sent, rig.failed) == ([1], [])


def test_calls_that_the_engine_took_fail_with_it_and_those_kept_go_to_its_successor(rig: Rig) -> None:
    for call_id in (3, 1, 2):
        rig.call(call_id)
    rig.hold()
    for call_id in (5, 4):
        rig.call(call_id)
    rig.traffic.engine_ended("died")
    assert (rig.relay.sent, rig.failed) == ([3, 1, 2], [3, 1, 2])
    rig.traffic.engine_up()
    assert (rig.relay.sent[3:], rig.failed[3:], rig.traffic.hold.is_holding) == ([5, 4], [], False)


def test_what_its_client_has_let_go_of_does_not_wait_for_a_successor(rig: Rig) -> None:
    """The engine ended before it answered the abort."""
    for name in ("gone", "stays"):
        rig.add(name)
    rig.traffic.abort(rig.relay.seats[0], ["gone"], [b"1"])  # type: ignore[arg-type]
    assert list(rig.inflight.flights) == ["gone", "stays"]
    rig.hold()
    rig.traffic.engine_ended("died")
    assert list(rig.inflight.flights) == list(rig.traffic.ledger.items) == ["stays"]


def test_what_an_operator_aborted_is_not_resumed_and_its_client_hears_it_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, str]] = []
    monkeypatch.setattr(
        rig.traffic, "_tell", lambda client, request_id, text, reason=None: heard.append((request_id, text))
    )
    for name in ("poison", "late"):
        rig.add(name)
        rig.inflight.flights[name].claim("operator")
    for _ in range(2):
        rig.traffic._tell_late([rig.inflight.flights["late"]])
    rig.hold()
    rig.traffic.engine_ended("died")
    rig.traffic.engine_up()
    assert sorted(heard) == [("late", ABORTED_BY_OPERATOR), ("poison", ABORTED_BY_OPERATOR)]
    assert not rig.inflight.flights and not rig.traffic.ledger.items and not rig.relay.sent


def test_a_successor_that_is_gone_already_ends_the_hold_and_fails_what_was_kept(rig: Rig) -> None:
    rig.hold()
    for call_id in (1, 2, 3):
        rig.call(call_id)
    rig.relay.fails = {1, 2}
    rig.traffic.engine_up()
    assert (rig.relay.sent, rig.failed, rig.traffic.hold.is_holding) == ([3], [1, 2], False)


@pytest.mark.parametrize(
    ("is_up", "is_own", "is_taken"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_who_asks_before_we_have_seen_the_api_server_listen_is_not_told_that_it_starts(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, is_up: bool, is_own: bool, is_taken: bool
) -> None:
    def starting() -> None:
        raise CtlError("starting")

    monkeypatch.setattr(rig.relay, "is_up", is_up, raising=False)
    rig.daemon.api, rig.daemon.phase, rig.daemon.check_admits = object(), "starting", starting
    with nullcontext() if is_taken else pytest.raises(CtlError, match="starting"):
        rig.traffic.add(rig.relay.seats[is_own], EngineCoreRequest("early", [3, 4]), [b"7"])  # type: ignore[arg-type]
    assert rig.relay.sent == [7] * is_taken


@pytest.mark.parametrize(("hold", "is_own"), [(True, False), (True, True), (False, False)])
def test_who_comes_when_an_engine_has_lost_its_sockets_waits_where_its_end_begins_a_hold(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, hold: bool, is_own: bool
) -> None:
    def gone(seat: Any, frames: list[bytes]) -> None:
        raise EngineDied("the engine is not connected")

    monkeypatch.setattr(rig.relay, "send", gone)
    rig.daemon.settings = SimpleNamespace(hold=hold, restart="on-failure")
    rig.daemon.expected, rig.daemon.stopping, rig.daemon.was_ever_ready = "", None, True
    rig.daemon.restart_times, rig.daemon.tracker = [], SimpleNamespace(elapsed_s=60.0)
    request, seat = EngineCoreRequest("early", [3, 4]), rig.relay.seats[is_own]
    is_kept = hold and not is_own
    with nullcontext() if is_kept else pytest.raises(EngineDied):
        rig.traffic.add(seat, request, [b""])  # type: ignore[arg-type]
    assert list(rig.traffic.ledger.items) == list(rig.inflight.flights) == ["early"] * is_kept


def test_an_id_that_is_taken_again_after_its_abort_is_not_ended_by_the_first_ones_last_output(rig: Rig) -> None:
    def hear(tokens: list[int], reason: FinishReason | None = None) -> None:
        output = EngineCoreOutput("r", tokens, finish_reason=reason)
        for mine in rig.traffic.on_outputs(rig.relay.seats[0], EngineCoreOutputs(0, [output])):  # type: ignore[arg-type]
            rig.inflight.on_output(mine, 1.0)

    seat = rig.relay.seats[0]
    for number in range(3):
        rig.traffic.add(seat, EngineCoreRequest("r", [3, 4]), [str(number).encode()])  # type: ignore[arg-type]
        if number < 2:
            rig.traffic.abort(seat, ["r"], [b"9"])  # type: ignore[arg-type]
    hear([5])
    hear([6], FinishReason.LENGTH)  # the first was done before its abort was read
    hear([7])
    hear([], FinishReason.ABORT)
    assert rig.inflight.flights["r"].output_tokens == 0 and rig.traffic.ledger.items["r"].token_ids == []
    hear([8])
    assert rig.inflight.flights["r"].output_tokens == 1 and rig.traffic.ledger.items["r"].token_ids == [8]
    hear([], FinishReason.STOP)
    assert not rig.inflight.flights and not rig.traffic.ledger.items


def test_past_the_limit_each_kept_call_is_answered_once(rig: Rig) -> None:
    rig.hold()
    rig.call(1)
    rig.traffic.fail_held("not back")
    rig.traffic.engine_ended("died")
    rig.traffic.engine_up()
    assert (rig.relay.sent, rig.failed) == ([], [1])


def test_a_flood_of_refusals_is_answered_one_by_one_and_told_once_a_second(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("enginectl.supervisor.traffic.time.monotonic", lambda: now)
    heard: list[str] = []
    monkeypatch.setattr(rig.traffic, "_tell", lambda client, request_id, text: heard.append(request_id))
    for number in range(1000):
        rig.traffic.refuse(0, f"r{number}", CtlError("cordoned"))
    now += module.TELL_EVERY_S
    rig.loop._run_timers()
    assert rig.told() == ["r0 of client 0: cordoned", "999 more requests refused"]  # though no other ever comes
    rig.traffic.refuse(0, "soon", CtlError("cordoned"))
    for _ in range(2):
        now += module.TELL_EVERY_S
        rig.loop._run_timers()
    rig.traffic.refuse(0, "late", CtlError("cordoned"))
    assert rig.told()[2:] == ["1 more request refused", "late of client 0: cordoned"]
    assert heard == [*(f"r{number}" for number in range(1000)), "soon", "late"]


def test_a_hold_counts_who_waits_and_who_failed_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rig.traffic, "_tell", lambda *args: None)
    monkeypatch.setattr(rig.relay, "send", lambda seat, frames: None)
    rig.add("greedy", temperature=0.0)
    rig.add("sampled", temperature=0.7)
    rig.add("waiting", temperature=0.7)
    for name in ("greedy", "sampled"):
        rig.traffic.ledger.on_output(EngineCoreOutput(name, [5]))
    for _ in range(2):
        rig.traffic.begin_hold(60.0, "fail")
    rig.traffic.engine_ended("died")
    rig.traffic.engine_up()
    began, held, released = rig.told()
    assert began == "clients wait for the next engine, 60 s at most"
    assert held == "2 requests held, 1 that cannot be resumed failed at once"
    assert released.endswith(": 2 requests, 1 resumed")


@pytest.mark.parametrize(("by_drain", "cut_off"), [(False, 0), (True, 1)])
def test_a_drain_is_blamed_for_what_it_aborts_itself(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, by_drain: bool, cut_off: int
) -> None:
    monkeypatch.setattr(rig.traffic, "_tell", lambda *args: None)
    rig.daemon.kind = KINDS["vllm"]
    monkeypatch.setattr(rig.relay, "abort", lambda ids: None, raising=False)
    rig.add("a")
    rig.loop.spawn(rig.traffic.abort_by_operator(["a"], by_drain=by_drain)).when_done(rig.loop.stop)
    rig.loop.run()
    assert (len(rig.inflight), rig.inflight.cut_off) == (0, cut_off)


def test_who_lets_go_of_a_request_is_not_cut_off(rig: Rig) -> None:
    rig.add("a")
    rig.traffic.abort(rig.relay.seats[0], ["a"], [b"0"])  # type: ignore[arg-type]
    flight = rig.inflight.flights["a"]
    rig.inflight.on_output(EngineCoreOutput("a", [], finish_reason=int(FinishReason.ABORT)), 0.0)
    assert flight.gone.done and rig.inflight.cut_off == 0
