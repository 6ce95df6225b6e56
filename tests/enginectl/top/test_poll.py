"""The poller against real sockets: what it shows of a supervisor that answers, lags, refuses, goes and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl import rundir
from enginectl.control import ErrorInfo, EventView, ExitInfo
from enginectl.errors import EngineDied
from enginectl.record import Record, write_json
from enginectl.rundir import make_state_dir, paths_of
from enginectl.top import poll
from enginectl.top.poll import Poller
from enginectl.top.snapshot import Snapshot
from tests.enginectl.top import samples
from tests.enginectl.top.peer import Peer, register
from tests.support.wait import wait_until


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def poller(engine_dirs: Path, clock: Clock) -> Iterator[Poller]:
    """Not started: each test takes its rounds by hand, on a clock of its own."""
    made = Poller("qwen", lambda snapshot: None, monotonic=clock)
    yield made
    made._seen.drop()


def test_the_first_round_shows_everything(peer: Peer, poller: Poller) -> None:
    shown = poller.look()
    assert shown.link.state == "live"
    assert shown.view is not None
    assert shown.view.stats is not None
    assert shown.view.stats.decode_tok_s == 1912.0
    assert len(shown.requests) == shown.requests_total == 32
    assert [event.seq for event in shown.events] == [1, 2]
    assert shown.engines == ("qwen",)


def test_figures_come_by_themselves(peer: Peer, poller: Poller) -> None:
    poller.look()
    peer.view.stats.decode_tok_s = 77.0  # type: ignore[union-attr]
    peer.mute.add("status")
    wait_until(lambda: poller.look().view.stats.decode_tok_s == 77.0, what="a published view")  # type: ignore[union-attr]


def test_requests_are_asked_for_once_a_round(peer: Peer, poller: Poller) -> None:
    for _ in range(5):
        poller.look()
    assert sum(verb == "requests" for verb, _ in peer.asked) == 5


def test_only_the_request_in_detail_is_explained(peer: Peer, poller: Poller) -> None:
    assert poller.look().explanation is None
    wanted = peer.requests[3].id
    poller.wants_explained = wanted
    found = poller.look().explanation
    assert found is not None and found.request.id == wanted
    peer.refuse["explain"] = ErrorInfo(id="E1001", message="verb 'explain' is not known to this supervisor")
    shown = poller.look()
    assert (shown.explanation, shown.link.state) == (None, "live")
    assert sum(verb == "explain" for verb, _ in peer.asked) == 2


def test_only_new_events_are_asked_for(peer: Peer, poller: Poller) -> None:
    poller.look()
    peer.events.append(EventView(ts=1.0, seq=9, type="abort", text="gone"))
    assert [event.seq for event in poller.look().events] == [1, 2, 9]
    assert [args["since_seq"] for verb, args in peer.asked if verb == "events"] == [0, 2]


def test_no_requests_are_asked_for_while_it_starts(peer: Peer, poller: Poller) -> None:
    peer.view = samples.starting().view  # type: ignore[assignment]
    assert poller.look().state == "starting"
    assert not any(verb == "requests" for verb, _ in peer.asked)


def test_a_refused_table_is_said_and_left_alone_for_a_while(peer: Peer, poller: Poller, clock: Clock) -> None:
    poller.look()
    peer.refuse["requests"] = ErrorInfo(id="E1302", message="the engine did not answer")
    shown = poller.look()
    assert shown.link.state == "live"
    assert shown.requests_error == "the engine did not answer"
    assert len(shown.requests) == 32
    asked = len(peer.asked)
    poller.look()
    assert not any(verb == "requests" for verb, _ in peer.asked[asked:])
    peer.refuse.clear()
    clock.now += poll.REQUESTS_REST_S
    assert poller.look().requests_error == ""


def test_silence_is_stale_then_unreachable_with_the_last_data(
    peer: Peer, poller: Poller, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poll, "REPLY_S", 0.1)
    poller.look()
    peer.publishes = False
    peer.mute |= {"status", "requests", "events"}
    wait_until(lambda: poller._seen.source.published() is None, what="nothing published is left")  # type: ignore[union-attr]
    clock.now += 4.0
    shown = poller.look()
    assert shown.link.state == "lost"
    assert shown.link.age_s == pytest.approx(4.0)
    assert shown.link.retry_in_s is not None
    assert shown.view is not None
    assert len(shown.requests) == 32
    assert shown.is_dimmed


def test_old_figures_are_stale(peer: Peer, poller: Poller, clock: Clock) -> None:
    poller.look()
    peer.publishes = False
    wait_until(lambda: poller._seen.source.published() is None, what="nothing published is left")  # type: ignore[union-attr]
    peer.refuse["status"] = ErrorInfo(id="E1302", message="busy with something else")
    clock.now += 4.0
    shown = poller.look()
    assert shown.link.state == "stale"
    assert shown.link.age_s == pytest.approx(4.0)


def test_nobody_there_is_a_value_with_back_off(engine_dirs: Path, poller: Poller, clock: Clock) -> None:
    register()
    waits = []
    for _ in range(6):
        shown = poller.look()
        assert shown.link.state == "lost"
        assert shown.view is None
        waits.append(shown.link.retry_in_s)
        clock.now += shown.link.retry_in_s or 0.0
    assert waits == [0.5, 1.0, 2.0, 5.0, 5.0, 5.0]


def test_before_its_time_there_is_no_retry(engine_dirs: Path, clock: Clock) -> None:
    tries = []

    def connect(name: str) -> poll.Source:
        tries.append(name)
        raise OSError("refused")

    poller = Poller("qwen", lambda snapshot: None, monotonic=clock, connect=connect)
    for _ in range(4):
        poller.look()
    assert tries == ["qwen"]


def test_a_supervisor_that_comes_back_is_found(engine_dirs: Path, poller: Poller, clock: Clock) -> None:
    folder = register()
    first = Peer(folder).start()
    try:
        assert poller.look().link.is_live
    finally:
        first.stop()
    clock.now += 10.0
    poller._seen.drop()
    assert poller.look().link.state == "lost"
    second = Peer(folder).start()
    try:
        second.events = [EventView(ts=1.0, seq=1, type="start", text="new life")]
        clock.now += 10.0
        shown = poller.look()
        assert shown.link.is_live
        assert [event.text for event in shown.events] == ["new life"]
    finally:
        second.stop()


def test_a_dead_engine_is_read_from_its_files(engine_dirs: Path, poller: Poller) -> None:
    make_state_dir("qwen")
    end = ExitInfo(signal="SIGKILL", cause="killed from outside")
    write_json(paths_of("qwen").record, Record(name="qwen", state="failed", ended=True, last_exit=end))
    shown = poller.look()
    assert shown.is_dead
    assert shown.link.is_live
    assert shown.view is not None
    assert shown.view.last_exit is not None
    assert shown.view.last_exit.cause == "killed from outside"


def test_a_death_while_we_look_keeps_the_last_figures(peer: Peer, poller: Poller, clock: Clock) -> None:
    assert poller.look().link.is_live
    write_json(paths_of("qwen").record, Record(name="qwen", state="exited", ended=True))
    poller._seen.drop()
    clock.now += 10.0
    shown = poller.look()
    assert shown.is_dead
    assert shown.view is not None
    assert shown.view.stats is not None
    assert shown.view.stats.decode_tok_s == 1912.0


def test_an_end_that_was_asked_for_leaves_nothing_in_flight(peer: Peer, poller: Poller, clock: Clock) -> None:
    assert poller.look().requests
    end = ExitInfo(code=0, requested=True)
    write_json(paths_of("qwen").record, Record(name="qwen", state="exited", ended=True, last_exit=end))
    poller._seen.drop()
    clock.now += 10.0
    shown = poller.look()
    assert shown.is_dead and not shown.requests and shown.requests_total == 0
    assert shown.view is not None and shown.view.stats is not None
    assert (shown.view.stats.running, shown.view.stats.waiting, shown.view.stats.decode_tok_s) == (0, 0, 0.0)
    assert shown.view.stats.step.p50_ms == 19.8


@pytest.mark.parametrize("verb", ["requests", "events"])
def test_a_supervisor_that_ends_between_two_questions_is_no_fault_of_the_table(
    verb: str, peer: Peer, poller: Poller, clock: Clock
) -> None:
    assert poller.look().link.is_live
    end = ExitInfo(code=0, requested=True)

    def gone(*_: object) -> object:
        write_json(paths_of("qwen").record, Record(name="qwen", state="exited", ended=True, last_exit=end))
        raise EngineDied("the supervisor of engine 'qwen' ended while requests waited")

    setattr(poller._seen.source, verb, gone)
    clock.now += 1.0
    shown = poller.look()
    assert shown.requests_error == ""
    assert shown.is_dead and shown.link.is_live


def test_the_last_words_of_a_supervisor_give_way_to_the_files(peer: Peer, poller: Poller, clock: Clock) -> None:
    peer.view = samples.view("failed")
    assert poller.look().is_dead
    peer.publishes = False
    wait_until(lambda: poller._seen.source.published() is None, what="nothing published is left")  # type: ignore[union-attr]
    end = ExitInfo(code=1, cause="out of memory")
    write_json(paths_of("qwen").record, Record(name="qwen", state="failed", ended=True, last_exit=end))
    clock.now += 2.0
    shown = poller.look()
    assert shown.link.is_live
    assert shown.view is not None
    assert shown.view.last_exit == end


def test_a_dead_engine_that_is_started_again_is_seen(engine_dirs: Path, poller: Poller, clock: Clock) -> None:
    make_state_dir("qwen")
    write_json(paths_of("qwen").record, Record(name="qwen", state="failed", ended=True))
    assert poller.look().is_dead
    second = Peer(register())
    second.publishes = False
    second.start()
    try:
        clock.now += 10.0
        assert poller.look().state == "busy"
    finally:
        poller._seen.drop()
        second.stop()


def test_a_bug_in_the_poller_is_said_and_tried_again(engine_dirs: Path, clock: Clock) -> None:
    def connect(name: str) -> poll.Source:
        raise ZeroDivisionError("ours")

    shown = Poller("qwen", lambda snapshot: None, monotonic=clock, connect=connect).look()
    assert shown.link.state == "lost"
    assert shown.link.reason == "ZeroDivisionError: ours"
    assert shown.link.retry_in_s == 0.5


def test_names_that_cannot_be_read_cost_the_names_alone(
    peer: Peer, poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> list[rundir.EngineEntry]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(rundir, "list_engines", fail)
    shown = poller.look()
    assert (shown.link.state, shown.engines) == ("live", ())


def test_switching_forgets_the_other_engine(peer: Peer, poller: Poller, clock: Clock) -> None:
    other = Peer(register("tiny"), "tiny")
    other.view = samples.view(name="tiny")
    other.requests = []
    other.start()
    try:
        poller.look()
        clock.now += poll.NAMES_EVERY_S
        assert poller.look().engines == ("qwen", "tiny")
        poller.switch("tiny")
        shown = poller.look()
        assert (shown.name, shown.requests) == ("tiny", ())
    finally:
        poller._seen.drop()
        other.stop()


def test_the_log_is_read_only_when_somebody_looks(peer: Peer, poller: Poller, tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("one\ntwo\n")
    peer.view.log = str(log)
    assert poller.look().log == ()
    poller.wants_log = True
    assert poller.look().log == ("one", "two")
    log.unlink()
    assert "cannot read" in poller.look().log[0]


def test_a_long_log_gives_its_end(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("".join(f"line {i}\n" for i in range(50_000)))
    lines = poll.tail(str(log))
    assert lines[-1] == "line 49999"
    assert lines[0].startswith("line ")
    assert len(lines) < 10_000


def test_the_thread_brings_snapshots_and_ends(peer: Peer) -> None:
    brought: list[Snapshot] = []
    poller = Poller("qwen", brought.append, interval_s=0.25)
    poller.start()
    wait_until(lambda: len(brought) >= 3, what="three snapshots")
    poller.stop(5.0)
    assert not any(thread.name == "top-poll" for thread in threading.enumerate())
    assert [snapshot.seq for snapshot in brought] == list(range(1, len(brought) + 1))


def test_hurry_does_not_wait_for_the_interval(peer: Peer) -> None:
    brought: list[Snapshot] = []
    poller = Poller("qwen", brought.append, interval_s=3600.0)
    poller.start()
    wait_until(lambda: len(brought) == 1, what="the first snapshot")
    poller.hurry()
    wait_until(lambda: len(brought) == 2, what="a hurried snapshot")
    poller.stop(5.0)
