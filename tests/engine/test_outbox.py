"""One client's way out on its own: never blocks, counts what it holds, gives buffers back."""

from __future__ import annotations

from pathlib import Path

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
