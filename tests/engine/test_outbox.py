"""One client's way out on its own: never blocks, counts what it holds, gives buffers back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
import zmq

from engine.outbox import SEND_HIGH_WATER_MARK, BufferPool, Outbox
from tests.support.wait import wait_until


def test_the_pool_keeps_what_it_may() -> None:
    pool = BufferPool(2)
    for _ in range(5):
        pool.give(bytearray(b"x"))
    pool.give(b"not a buffer")
    assert len(pool) == 2
    assert pool.take() == b"x" and len(pool) == 1


def test_an_outbox_never_blocks(tmp_path: Path) -> None:
    with zmq.Context() as context:
        outbox = Outbox(context, f"ipc://{tmp_path}/nobody", BufferPool(2), 10_000)
        taken = 0
        while outbox.send([b"x" * 100]):
            taken += 1
        assert taken >= SEND_HIGH_WATER_MARK and outbox.held_bytes <= 10_000 and outbox.is_dropping
        assert not outbox.flush()
        outbox.close(0)


def test_one_output_over_the_whole_budget_still_goes(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as reader:
        address = f"ipc://{tmp_path}/o"
        reader.bind(address)
        outbox = Outbox(context, address, BufferPool(2), byte_budget=1000)
        for _ in range(3):
            assert outbox.send([bytearray(200_000)])
            assert outbox.held_bytes > 200_000 and not outbox.is_settled
            assert reader.poll(10_000) and len(reader.recv()) == 200_000
            wait_until(lambda: outbox.flush() or outbox.is_settled)
            assert outbox.held_bytes == 0
        outbox.close(0)


def test_what_is_being_sent_is_not_left_unread(tmp_path: Path) -> None:
    with connected(tmp_path, byte_budget=1000) as (outbox, reader):
        for number in range(3):
            assert outbox.send([bytearray(64_000_000)]) and outbox.send([b"%d" % number])
            assert not outbox.is_dropping
            for length in (64_000_000, 1):
                wait_until(lambda: outbox.flush() or reader.poll(0))
                assert reader.poll(10_000) and len(reader.recv()) == length
            wait_until(lambda: outbox.flush() or outbox.is_settled)


@contextmanager
def connected(
    tmp_path: Path, reads_at_once: int = 0, byte_budget: int = 1024**3
) -> Iterator[tuple[Outbox, zmq.Socket[bytes]]]:
    """An outbox and its reader, which takes no more than `reads_at_once` messages (0: any number) unasked."""
    address = f"ipc://{tmp_path}/o"
    with zmq.Context() as context, context.socket(zmq.PULL) as reader:
        reader.setsockopt(zmq.RCVHWM, reads_at_once)
        reader.bind(address)
        outbox = Outbox(context, address, BufferPool(2), byte_budget)
        yield outbox, reader
        outbox.close(0)


def from_another_thread(outbox: Outbox, frames: list[bytes]) -> bool:
    found: list[bool] = []
    thread = Thread(target=lambda: found.append(outbox.send_at_once(frames)))
    thread.start()
    thread.join(10)
    return found[0]


def test_another_thread_sends_at_once_and_behind_what_was_sent(tmp_path: Path) -> None:
    with connected(tmp_path) as (outbox, reader):
        for number in range(200):
            assert outbox.send([b"%d" % number, b"by the owner"])
            assert from_another_thread(outbox, [b"%d" % number, b"at once"])
        for number in range(200):
            for sender in (b"by the owner", b"at once"):
                assert reader.poll(10_000) and reader.recv_multipart() == [b"%d" % number, sender]
        assert outbox.is_settled and outbox.held_bytes == 0


def test_nothing_goes_at_once_past_what_waits(tmp_path: Path) -> None:
    with connected(tmp_path, reads_at_once=1) as (outbox, reader):
        taken = 0
        while not outbox.has_pending:
            outbox.send([bytes(20_000)])
            taken += 1
        assert not from_another_thread(outbox, [b"at once"])
        for _ in range(taken):
            wait_until(lambda: outbox.flush() or reader.poll(0))
            assert reader.poll(10_000) and len(reader.recv()) == 20_000
            outbox.flush()
        assert not reader.poll(100) and from_another_thread(outbox, [b"at once"])
        assert reader.poll(10_000) and reader.recv() == b"at once"


def test_what_is_long_or_comes_after_the_last_message_does_not_go_at_once(tmp_path: Path) -> None:
    with connected(tmp_path) as (outbox, reader):
        half = bytes(zmq.COPY_THRESHOLD // 2)
        assert not from_another_thread(outbox, [half, half]) and from_another_thread(outbox, [half, half[1:]])
        assert reader.poll(10_000) and reader.recv_multipart() == [half, half[1:]]
        outbox.append_last([b"last"])
        assert outbox.flush() and outbox.is_settled
        assert not from_another_thread(outbox, [b"at once"])
        assert reader.poll(10_000) and reader.recv() == b"last"
        assert not reader.poll(100)


def test_nothing_goes_at_once_to_who_is_behind_or_has_gone(tmp_path: Path) -> None:
    with zmq.Context() as context:
        outbox = Outbox(context, f"ipc://{tmp_path}/nobody", BufferPool(2), 10**9)
        sent = 0
        while outbox.send_at_once([b"x"]):
            sent += 1
        assert sent == SEND_HIGH_WATER_MARK and not outbox.has_pending
        outbox.close(0)
        assert not outbox.send_at_once([b"x"])


def test_nobody_waits_for_who_is_at_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner is in the middle of a send: the other is told so, and what it has goes nowhere."""
    with connected(tmp_path) as (outbox, reader):
        send, answers = outbox.socket.send_multipart, []

        def slow(*args: object, **options: object) -> object:
            answers.append(from_another_thread(outbox, [b"at once"]))
            return send(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(outbox.socket, "send_multipart", slow, raising=False)
        assert outbox.send([b"by the owner"]) and answers == [False]
        monkeypatch.undo()
        assert reader.poll(10_000) and reader.recv() == b"by the owner"
        assert not reader.poll(100) and from_another_thread(outbox, [b"at once"])
