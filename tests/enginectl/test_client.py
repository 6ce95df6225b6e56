"""Attaching from outside: which silence is which error, and that no wait is without an end."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from enginectl.channel import ControlClient, StatsStream
from enginectl.control import ControlReply, EngineView
from enginectl.control_verbs import RequestsArgs, StatusArgs, WatchArgs
from enginectl.envelope import decode_request, encode, error_from, error_info, pack
from enginectl.errors import CtlError, Deadline, EngineDied, Exit, NoSuchEngine, NotRunning, Unreachable, WrongState
from enginectl.identity import ProcessId, boot_id, identify

Answer = Callable[[int, str], Iterable[ControlReply]]


@contextmanager
def supervisor(path: Path, answer: Answer) -> Iterator[None]:
    """A peer that answers each request with what `answer(id, verb)` says."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sock = context.socket(zmq.ROUTER)
    sock.bind(f"ipc://{path}")
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            if sock.poll(20):
                peer, frame = sock.recv_multipart()
                request = decode_request(frame)
                for reply in answer(request.id, request.verb):
                    sock.send_multipart([peer, encode(reply)])
        sock.close(0)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        context.term()


VIEW = EngineView(name="t", state="idle")


def one_view(number: int, verb: str) -> list[ControlReply]:
    return [ControlReply(id=number, kind="reply", data=pack(VIEW))]


def test_one_request_one_reply(tmp_path: Path) -> None:
    with supervisor(tmp_path / "c", one_view), ControlClient(tmp_path / "c", name="t") as client:
        assert client.request("status", StatusArgs(), EngineView) == VIEW


def test_late_answers_to_earlier_requests_are_discarded(tmp_path: Path) -> None:
    def stale(number: int, verb: str) -> list[ControlReply]:
        old = EngineView(name="old", state="failed")
        return [ControlReply(id=number - 1, kind="reply", data=pack(old)), *one_view(number, verb)]

    with supervisor(tmp_path / "c", stale), ControlClient(tmp_path / "c") as client:
        assert client.request("status", StatusArgs(), EngineView).name == "t"


def test_errors_come_back_as_their_class_with_every_field(tmp_path: Path) -> None:
    sent = WrongState("is draining", cause="why", try_=["a"], see=["b"])

    def refuse(number: int, verb: str) -> list[ControlReply]:
        return [ControlReply(id=number, kind="error", error=error_info(sent))]

    with (
        supervisor(tmp_path / "c", refuse),
        ControlClient(tmp_path / "c") as client,
        pytest.raises(WrongState) as caught,
    ):
        client.request("requests", RequestsArgs(), EngineView)
    got = caught.value
    assert (got.message, got.cause, got.try_, got.see, got.exit) == (
        "is draining",
        "why",
        ["a"],
        ["b"],
        Exit.WRONG_STATE,
    )


def test_an_error_of_a_newer_version_keeps_its_id() -> None:
    info = error_info(CtlError("new", id="E9000"))
    info.exit = 77
    assert (error_from(info).id, error_from(info).exit) == ("E9000", Exit.ENGINE_ERROR)


def test_a_stream_yields_items_and_keeps_its_end(tmp_path: Path) -> None:
    def stream(number: int, verb: str) -> list[ControlReply]:
        item = ControlReply(id=number, kind="item", data=pack(VIEW))
        beat = ControlReply(id=number, kind="beat")
        end = EngineView(name="t", state="exited")
        return [item, beat, item, ControlReply(id=number, kind="end", data=pack(end))]

    with supervisor(tmp_path / "c", stream), ControlClient(tmp_path / "c") as client:
        views = client.stream("watch", WatchArgs(), EngineView, EngineView)
        assert [view.state for view in views] == ["idle", "idle"]
        assert views.end is not None and views.end.state == "exited"


def test_nobody_listening_is_unreachable_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        ControlClient(tmp_path / "missing")
    (tmp_path / "file").write_text("")
    with pytest.raises(Unreachable, match="unreachable") as caught:
        ControlClient(tmp_path / "file")
    assert "not a socket" in caught.value.cause


def test_a_listener_whose_queue_is_full_is_not_called_unreachable(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "c"))
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(str(tmp_path / "c"))
        with (
            ControlClient(tmp_path / "c", reply_timeout_s=0.1) as client,
            pytest.raises(Unreachable) as caught,
        ):
            client.request("status", StatusArgs(), EngineView)
        for one in waiting:
            one.close()
    assert "no answer to status" in caught.value.cause  # it was let in and nobody said a word


def test_a_silent_supervisor_is_named_with_what_is_known(tmp_path: Path) -> None:
    me = identify(os.getpid())
    with (
        supervisor(tmp_path / "c", lambda number, verb: []),
        ControlClient(tmp_path / "c", name="t", supervisor=me, reply_timeout_s=0.2) as client,
        pytest.raises(Unreachable) as caught,
    ):
        client.request("status", StatusArgs(), EngineView)
    assert f"(pid {os.getpid()}) is alive and does not answer" in caught.value.cause
    assert "no answer to status in 0.2 s (socket present)" in caught.value.cause
    assert caught.value.try_[0] == "enginectl kill t"


@pytest.mark.thread
def test_an_answer_that_has_begun_is_waited_for_while_its_supervisor_gets_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enginectl.channel.BEAT_S", 0.05)

    def slow(number: int, verb: str) -> Iterator[ControlReply]:
        yield ControlReply(id=number, kind="item", data=pack(VIEW))
        threading.Event().wait(1.0)  # ten times what silence may last otherwise
        yield ControlReply(id=number, kind="end", data=pack(VIEW))

    def views(supervisor: ProcessId | None) -> int:
        with ControlClient(tmp_path / "c", supervisor=supervisor, reply_timeout_s=0.1) as client:
            return len(list(client.stream("watch", WatchArgs(), EngineView, EngineView)))

    with supervisor(tmp_path / "c", slow):
        assert views(identify(os.getpid())) == 1
        with pytest.raises(Unreachable):  # nobody knows whether it lives
            views(None)


def test_a_supervisor_that_ended_meanwhile_is_said_to_be_dead(tmp_path: Path) -> None:
    gone = ProcessId(pid=os.getpid(), start_time=1, boot_id=boot_id())
    with (
        supervisor(tmp_path / "c", lambda number, verb: []),
        ControlClient(tmp_path / "c", supervisor=gone, reply_timeout_s=0.2) as client,
        pytest.raises(EngineDied),
    ):
        client.request("status", StatusArgs(), EngineView)


def test_the_whole_operation_has_its_own_deadline(tmp_path: Path) -> None:
    def beats(number: int, verb: str) -> list[ControlReply]:
        return [ControlReply(id=number, kind="beat")]

    with (
        supervisor(tmp_path / "c", beats),
        ControlClient(tmp_path / "c", name="t") as client,
        pytest.raises(Deadline, match=r"not done in 0\.2 s"),
    ):
        client.request("status", StatusArgs(), EngineView, timeout_s=0.2)


def test_names_without_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from enginectl.client import connect
    from enginectl.rundir import save_settings
    from enginectl.settings import EngineSettings

    monkeypatch.setenv("ENGINECTL_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("ENGINECTL_RUNTIME_DIR", str(tmp_path / "r"))
    with pytest.raises(NoSuchEngine):
        connect("t")
    save_settings(EngineSettings(name="t", config={"model": "/m"}))
    with pytest.raises(NotRunning, match="never started"):
        connect("t")


def test_stats_without_a_publisher_are_none(tmp_path: Path) -> None:
    stream = StatsStream(tmp_path / "s")
    assert stream.read(0.01) is None
    stream.close()
