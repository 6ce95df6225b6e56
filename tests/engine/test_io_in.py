"""The input thread over real sockets: order, answers, junk, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec
import pytest
import zmq

from engine import codec
from engine.admission import preprocess_add_request
from engine.codec import Dialect
from engine.io_in import Counters, InputThread
from engine.messages import (
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineZmqAddresses,
    SamplingParams,
    UtilityCall,
)
from engine.queues import Abort, Add, Call, Emit, Refuse, RefuseCall, ThreadDied, ToLoop
from engine.scheduler.request import Request
from tests.support import hostile
from tests.support.frontend import RawFrontend
from tests.support.wait import wait_until

pytestmark = pytest.mark.thread

READY = EngineCoreReadyResponse(max_model_len=64, num_gpu_blocks=8, block_size=16, dtype="float32")
TIMEOUT_S = 20.0


class Loop:
    """Stands where the main loop would: takes what the input thread puts."""

    def __init__(self, addresses: EngineZmqAddresses, is_loop_waiting: Callable[[], bool] = lambda: True) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.input_queue: SimpleQueue[ToLoop] = SimpleQueue()
        self.aborts_queue: SimpleQueue[Abort] = SimpleQueue()
        self.output_queue: SimpleQueue[object] = SimpleQueue()
        self.dialects: dict[int, Dialect] = {}
        self.counters = Counters()
        self.at_once: SimpleQueue[tuple[int, EngineCoreOutputs]] = SimpleQueue()
        self.may_send_at_once = True
        self.thread = InputThread(
            context=self.context,
            addresses=addresses,
            engine_index=0,
            ready_response=READY,
            input_queue=self.input_queue,
            aborts_queue=self.aborts_queue,
            output_queue=self.output_queue,  # type: ignore[arg-type]
            admit=self.admit,
            instant=self.instant,
            send_at_once=self.send_at_once,
            is_loop_waiting=is_loop_waiting,
            dialects=self.dialects,
            counters=self.counters,
        )

    def admit(self, wire: EngineCoreRequest, seq: int) -> Request:
        if wire.request_id == "breaks admission":
            raise ZeroDivisionError(wire.cache_salt)
        return preprocess_add_request(wire, vocab_size=100, max_model_len=64, num_gpu_blocks=8, block_size=16, seq=seq)

    def instant(self, call: UtilityCall) -> EngineCoreOutputs | None:
        if call.method == "breaks":
            raise RecursionError("deep")
        if call.method != "instant":
            return None
        return EngineCoreOutputs(utility_output=codec.utility_answer(call.call_id, "at once"))

    def send_at_once(self, client: int, outputs: EngineCoreOutputs) -> bool:
        if self.may_send_at_once:
            self.at_once.put((client, outputs))
        return self.may_send_at_once

    def next(self) -> ToLoop:
        try:
            return self.input_queue.get(timeout=TIMEOUT_S)
        except Empty:
            raise AssertionError("nothing came into the input queue") from None

    def close(self) -> None:
        assert self.thread.stop(5.0)
        self.context.destroy(linger=0)


@pytest.fixture
def frontend(tmp_path: Path) -> Iterator[RawFrontend]:
    with RawFrontend(tmp_path, num_clients=2) as found:
        yield found


@pytest.fixture
def loop(frontend: RawFrontend) -> Iterator[Loop]:
    found = Loop(frontend.addresses)
    found.thread.start()
    frontend.wait_ready_responses()
    yield found
    found.close()


def send_raw(frontend: RawFrontend, *body: object, kind: bytes = hostile.UTILITY, client: int = 0) -> None:
    frontend.send_frames([kind, msgspec.msgpack.encode(list(body))], client)


def test_each_client_gets_the_ready_response_first(frontend: RawFrontend, loop: Loop) -> None:
    assert frontend.ready_responses == {0: READY, 1: READY}
    assert loop.thread.wait_connected(1.0)


def test_an_add_arrives_prepared(frontend: RawFrontend, loop: Loop) -> None:
    frontend.add("a", [1, 2, 3], client=1, max_tokens=5)
    message = loop.next()
    assert isinstance(message, Add)
    assert (message.request.request_id, message.request.client_index, message.request.max_tokens) == ("a", 1, 5)
    assert message.request.admitted_seq == message.seq


def test_an_abort_goes_to_both_queues_and_after_what_came_before(frontend: RawFrontend, loop: Loop) -> None:
    rounds = 1000
    for _ in range(rounds):
        frontend.add("x", [1])
        frontend.abort(["x"])
    frontend.add("x", [1])
    seqs = []
    for _ in range(rounds):
        added, aborted = loop.next(), loop.next()
        assert isinstance(added, Add) and isinstance(aborted, Abort)
        assert aborted.request_ids == ["x"] and added.seq < aborted.seq
        early = loop.aborts_queue.get_nowait()
        assert early == aborted
        seqs += [added.seq, aborted.seq]
    last = loop.next()
    assert isinstance(last, Add) and last.seq > max(seqs) and seqs == sorted(seqs)


def test_a_refused_request_says_why(frontend: RawFrontend, loop: Loop) -> None:
    frontend.add("a", [1, 2, 500], client=1)
    message = loop.next()
    assert isinstance(message, Refuse)
    assert (message.request_id, message.client_index) == ("a", 1) and "500" in message.text
    assert loop.counters.rejected_messages == 0


def test_an_exception_in_admission_ends_that_request_only(
    frontend: RawFrontend, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    secret = EngineCoreRequest("breaks admission", [1], sampling_params=SamplingParams(), cache_salt="a secret")
    frontend.send_request(secret)
    message = loop.next()
    assert message == Refuse("breaks admission", 0, "admission failed: ZeroDivisionError")
    assert "secret" not in caplog.text and "ZeroDivisionError" in caplog.text
    frontend.add("b", [1])
    assert isinstance(loop.next(), Add)


def test_a_client_that_does_not_exist(frontend: RawFrontend, loop: Loop) -> None:
    for wrong in (2, -1, 10**6):
        request = EngineCoreRequest("a", [1], sampling_params=SamplingParams(), client_index=wrong)
        frontend.send_request(request, client=1)
        message = loop.next()
        assert isinstance(message, Refuse) and message.client_index == 1 and str(wrong) in message.text
    send_raw(frontend, 7, 33, "ping", [], client=1)
    answer = loop.next()
    assert isinstance(answer, RefuseCall) and (answer.call_id, answer.client_index) == (33, 1)


def test_calls(frontend: RawFrontend, loop: Loop) -> None:
    call_id = frontend.ask("pause_scheduler", "keep", True, client=1)
    message = loop.next()
    assert isinstance(message, Call)
    assert (message.call.call_id, message.call.client_index, message.call.method) == (call_id, 1, "pause_scheduler")
    assert [codec.decode_value(arg, object) for arg in message.call.args] == ["keep", True]
    call_id = frontend.ask("breaks")
    failed = loop.next()
    assert isinstance(failed, RefuseCall) and failed.call_id == call_id and "breaks failed" in failed.text


def test_an_instant_answer_goes_at_once_or_through_the_queue(frontend: RawFrontend, loop: Loop) -> None:
    """Never both."""
    call_id = frontend.ask("instant", client=1)
    client, outputs = loop.at_once.get(timeout=TIMEOUT_S)
    assert client == 1 and outputs.timestamp > 0
    assert outputs.utility_output is not None and outputs.utility_output.call_id == call_id
    loop.may_send_at_once = False
    call_id = frontend.ask("instant")
    emitted = loop.output_queue.get(timeout=TIMEOUT_S)
    assert isinstance(emitted, Emit) and emitted.client_index == 0 and emitted.outputs.timestamp > 0
    assert emitted.outputs.utility_output is not None and emitted.outputs.utility_output.call_id == call_id
    assert loop.at_once.empty() and loop.output_queue.empty()


@pytest.mark.parametrize(("dialect", "expected"), [(Dialect.V025, Dialect.V025), (Dialect.V032, Dialect.V032)])
def test_the_dialect_shows_in_a_clients_first_add(
    frontend: RawFrontend, loop: Loop, dialect: Dialect, expected: Dialect
) -> None:
    frontend.dialect = dialect
    frontend.add("a", [1], client=1)
    loop.next()
    assert loop.dialects == {1: expected}


def test_wrong_messages_are_counted_and_answered_when_they_have_an_id(frontend: RawFrontend, loop: Loop) -> None:
    send_raw(frontend, "a", "not a list", None, None, kind=hostile.ADD, client=1)
    message = loop.next()
    assert isinstance(message, Refuse) and (message.request_id, message.client_index) == ("a", 0)
    send_raw(frontend, 1, 2**63 + 3, "ping", "not a list", client=1)
    answer = loop.next()
    assert isinstance(answer, RefuseCall) and (answer.call_id, answer.client_index) == (2**63 + 3, 1)
    frontend.send_frames([b"\x00"])
    wait_until(lambda: loop.counters.rejected_messages == 3)
    assert loop.input_queue.empty()


def test_all_the_junk_then_a_good_request(
    frontend: RawFrontend, loop: Loop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bomb = tmp_path / "bomb"
    for sent, (_, frames) in enumerate(hostile.messages(bomb)):
        frontend.send_frames(frames, sent % 2)
    frontend.add("good", [1, 2, 3], client=1)
    frontend.add("good too", [1, 2, 3], client=0)
    good = set()
    while len(good) < 2:
        message = loop.next()
        assert not isinstance(message, ThreadDied)
        if isinstance(message, Add) and message.request.request_id.startswith("good"):
            good.add(message.request.request_id)
        elif isinstance(message, Refuse):
            assert message.text and len(message.text) < 500
    assert loop.counters.rejected_messages > 1000
    assert loop.thread.is_alive() and not bomb.exists()
    assert len(caplog.records) < 100


def test_a_flood_through_one_client_does_not_stop_the_other(frontend: RawFrontend, loop: Loop) -> None:
    for number in range(5000):
        frontend.add(f"f{number}", [1])
    frontend.add("other", [1], client=1)
    seen = []
    for _ in range(5001):
        message = loop.next()
        assert isinstance(message, Add)
        seen.append(message.request.request_id)
    assert [name for name in seen if name != "other"] == [f"f{number}" for number in range(5000)]


def test_junk_below_zmq(tmp_path: Path) -> None:
    """A frontend's port answered by something that speaks no ZMQ: the thread waits, and stops when told."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        loop = Loop(EngineZmqAddresses(inputs=[f"tcp://127.0.0.1:{port}"], outputs=["ipc:///unused"]))
        loop.thread.start()
        for noise in (b"HTTP/1.1 200 OK\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\xff\x00", b""):
            link, _ = listener.accept()
            link.sendall(noise)
            link.close()
        assert loop.thread.is_alive()
        loop.close()


def test_a_coordinator_is_waited_for_while_requests_are_served(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.setsockopt(zmq.LINGER, 0)
        address = f"ipc://{tmp_path}/c"
        publisher.bind(address)
        with RawFrontend(tmp_path, coordinator=(address, address + "o")) as frontend:
            loop = Loop(frontend.addresses)
            loop.thread.start()
            frontend.wait_ready_responses()
            frontend.add("a", [1])
            assert isinstance(loop.next(), Add)
            assert publisher.poll(10_000) and publisher.recv() == b"\x01"
            assert not loop.thread.wait_connected(0.3)
            publisher.send(b"READY")
            assert loop.thread.wait_connected(10.0)
            publisher.send_multipart([hostile.WAVE, msgspec.msgpack.encode([1, 0])])
            wait_until(lambda: loop.counters.rejected_messages == 1)
            frontend.add("b", [1])
            assert isinstance(loop.next(), Add)
            loop.close()


def test_death_is_posted(frontend: RawFrontend) -> None:
    loop = Loop(EngineZmqAddresses(inputs=["carrier-pigeon://x"], outputs=["ipc:///unused"]))
    loop.thread.start()
    message = loop.next()
    assert isinstance(message, ThreadDied) and message.name == "engine-in" and "ZMQError" in message.cause
    assert not loop.thread.wait_connected(5.0)
    loop.close()


def test_idle_costs_nothing(frontend: RawFrontend, loop: Loop) -> None:
    """No wake-ups without messages: the thread's own clock stands still."""
    frontend.add("a", [1])
    loop.next()
    clock = Path(f"/proc/self/task/{loop.thread.native_id}/status")

    def switches() -> int:
        lines = clock.read_text().splitlines()
        return int(next(line for line in lines if line.startswith("voluntary_ctxt_switches")).split()[1])

    settled = wait_until(lambda: [switches()], every_s=0.3)[0]
    with pytest.raises(Empty):
        loop.input_queue.get(timeout=1.0)
    assert switches() - settled <= 2


def test_stop_before_start_and_twice(frontend: RawFrontend) -> None:
    loop = Loop(frontend.addresses)
    assert loop.thread.stop(1.0)
    loop.close()


def test_no_file_descriptor_is_left(frontend: RawFrontend) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    def once() -> None:
        loop = Loop(frontend.addresses)
        loop.thread.start()
        assert loop.thread.wait_connected(5.0)
        loop.close()

    once()
    before = open_files()
    for _ in range(5):
        once()
    assert wait_until(lambda: open_files() <= before)


def test_the_junk_under_optimisation(tmp_path: Path) -> None:
    """This file's junk test in an interpreter without asserts in the product (pytest keeps its own by plain code)."""
    script = (
        "import sys\nfrom pathlib import Path\nassert False\n"
        "from tests.engine.test_io_in import Loop, hostile, RawFrontend, Add, wait_until\n"
        "root = Path(sys.argv[1])\n"
        "with RawFrontend(root) as frontend:\n"
        "    loop = Loop(frontend.addresses); loop.thread.start(); frontend.wait_ready_responses()\n"
        "    for _, frames in hostile.messages(root / 'bomb'): frontend.send_frames(frames)\n"
        "    frontend.add('good', [1])\n"
        "    while True:\n"
        "        message = loop.next()\n"
        "        if isinstance(message, Add) and message.request.request_id == 'good': break\n"
        "    print(loop.counters.rejected_messages, loop.thread.is_alive(), (root / 'bomb').exists())\n"
        "    loop.close()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-O", "-O", "-c", script, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    rejected, alive, exploded = ran.stdout.split()
    assert int(rejected) > 1000 and (alive, exploded) == ("True", "False")
