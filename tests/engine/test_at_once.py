"""Short answers that engine-in sends past the queue, over real sockets: at once, or not at all."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from engine import codec
from engine.codec import decode_outputs
from engine.io_out import OutputThread
from engine.messages import EngineCoreOutputs, UtilityOutput
from engine.queues import Emit
from tests.engine.test_io_out import TIMEOUT_S, check, numbered, read_one, running
from tests.support.frontend import RawFrontend
from tests.support.wait import wait_until

pytestmark = pytest.mark.thread


def test_an_answer_goes_at_once_when_nothing_waits_before_it(tmp_path: Path) -> None:
    def answer(number: int) -> EngineCoreOutputs:
        return EngineCoreOutputs(utility_output=codec.utility_answer(number, [number]))

    with RawFrontend(tmp_path, num_clients=2) as frontend, running(frontend) as loop:
        wait_until(lambda: loop.thread.send_at_once(1, answer(1)))
        sent = decode_outputs(frontend.recv_output(1))
        assert isinstance(sent, EngineCoreOutputs) and sent.utility_output is not None
        assert sent.utility_output.call_id == 1
        assert not loop.thread.send_at_once(7, answer(2)), "nobody has that number"
        broken = UtilityOutput(3, "half a character: \ud800")
        assert not loop.thread.send_at_once(0, EngineCoreOutputs(utility_output=broken)), "engine-out tells the caller"
    assert not loop.thread.send_at_once(0, answer(4)), "the sockets are closed"


@pytest.mark.parametrize("more", [0, 1])
def test_no_answer_passes_what_is_queued_or_being_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    has_taken, go, send = Event(), Event(), OutputThread._send

    def held(thread: OutputThread, item: Emit) -> None:
        has_taken.set()
        assert go.wait(TIMEOUT_S)
        send(thread, item)

    monkeypatch.setattr(OutputThread, "_send", held)
    with RawFrontend(tmp_path) as frontend, running(frontend) as loop:
        answer = EngineCoreOutputs(utility_output=codec.utility_answer(1, "at once"))
        wait_until(lambda: loop.thread.send_at_once(0, answer))
        assert frontend.recv_output()
        for number in range(1 + more):
            loop.emit(0, numbered(number, 50))
        assert has_taken.wait(TIMEOUT_S) and not loop.thread.send_at_once(0, answer)
        go.set()
        for number in range(1 + more):
            check(read_one(frontend), number)
        wait_until(lambda: loop.thread.send_at_once(0, answer))
        assert frontend.recv_output()
