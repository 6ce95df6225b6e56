"""The output thread over real sockets: order, bytes, slow and silent readers, last words."""

from __future__ import annotations

import random
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec
import pytest
import zmq

from engine import codec
from engine.codec import Dialect, decode_outputs
from engine.counters import Counters
from engine.io_out import LAST_WORDS_S, OutputThread
from engine.messages import (
    ENGINE_CORE_DEAD,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineZmqAddresses,
    FinishReason,
    Logprobs,
    NdArray,
    UtilityOutput,
)
from engine.queues import ClientGone, Emit, FromLoop, LastWords, OutputsLost, ThreadDied, ToLoop
from tests.support.frontend import RawFrontend
from tests.support.wait import wait_until

pytestmark = pytest.mark.thread

NOISE = random.Random(3).randbytes(110_000).hex()
BUDGET = 4 * 1024**2
TIMEOUT_S = 20.0


class Loop:
    """Stands where the main loop would: puts what the output thread takes."""

    def __init__(self, addresses: EngineZmqAddresses, budget: int = BUDGET, last_words_s: float = 1.0) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.output_queue: SimpleQueue[FromLoop] = SimpleQueue()
        self.input_queue: SimpleQueue[ToLoop] = SimpleQueue()
        self.counters = Counters()
        self.thread = OutputThread(
            context=self.context,
            addresses=addresses,
            engine_index=0,
            output_queue=self.output_queue,
            input_queue=self.input_queue,
            counters=self.counters,
            client_byte_budget=budget,
            last_words_s=last_words_s,
        )

    def emit(self, client: int, *outputs: EngineCoreOutput) -> None:
        self.output_queue.put(Emit(client, EngineCoreOutputs(0, list(outputs), None, 1.0)))

    def close(self) -> None:
        """Last words, then the end of the thread and of everything it sent."""
        self.output_queue.put(LastWords())
        self.thread.join(LAST_WORDS_S + 5)
        assert not self.thread.is_alive()
        self.context.term()


@contextmanager
def running(frontend: RawFrontend, budget: int = BUDGET, last_words_s: float = 1.0) -> Iterator[Loop]:
    loop = Loop(frontend.addresses, budget, last_words_s)
    for client in range(len(frontend.addresses.outputs)):
        loop.thread.dialects[client] = Dialect.V025
    loop.thread.start()
    try:
        yield loop
    finally:
        loop.close()


def numbered(number: int, size: int) -> EngineCoreOutput:
    """A body of about `size` bytes that carries its own checksum."""
    text = NOISE[number % 997 : number % 997 + size]
    return EngineCoreOutput(str(number), [], stop_reason=text, num_nans_in_logits=zlib.crc32(text.encode()))


def with_arrays(number: int, size: int) -> EngineCoreOutput:
    """Two long frames of `size` bytes and a short one at the end, after a short body."""
    data = [NOISE[(number + shift) % 997 :][:length].encode() for shift, length in ((0, size), (1, size), (2, 400))]
    arrays = [NdArray("|u1", [len(part)], part) for part in data]
    return EngineCoreOutput(str(number), [], Logprobs(*arrays), num_nans_in_logits=zlib.crc32(b"".join(data)))


def long_then_short(number: int, size: int) -> EngineCoreOutput:
    """A body of `size` bytes with a short frame behind it: the tracker of the whole send is done at once."""
    output = numbered(number, size)
    output.new_prompt_logprobs = with_arrays(number, 300).new_logprobs
    return output


def check(output: EngineCoreOutput, number: int) -> None:
    assert output.request_id == str(number)
    if output.new_logprobs is None:
        assert output.num_nans_in_logits == zlib.crc32(str(output.stop_reason).encode())
    else:
        arrays = (output.new_logprobs.token_ids, output.new_logprobs.logprobs, output.new_logprobs.ranks)
        assert output.num_nans_in_logits == zlib.crc32(b"".join(array.data for array in arrays))


def read_one(frontend: RawFrontend, client: int = 0) -> EngineCoreOutput:
    message = decode_outputs(frontend.recv_output(client, TIMEOUT_S))
    assert isinstance(message, EngineCoreOutputs)
    return message.outputs[0]


def test_each_client_gets_its_own_in_order(tmp_path: Path) -> None:
    with RawFrontend(tmp_path, num_clients=3) as frontend, running(frontend) as loop:
        for number in range(300):
            loop.emit(number % 3, numbered(number, 50))
        for number in range(300):
            check(read_one(frontend, number % 3), number)
        assert loop.counters.pending_bytes == 0 and loop.counters.dropped_outputs == 0


@pytest.mark.parametrize(("dialect", "fields"), [(Dialect.V025, 13), (Dialect.V032, 18), (None, 9)])
def test_in_the_clients_dialect(tmp_path: Path, dialect: Dialect | None, fields: int) -> None:
    with RawFrontend(tmp_path) as frontend, running(frontend) as loop:
        loop.thread.dialects.clear()
        if dialect is not None:
            loop.thread.dialects[0] = dialect
        loop.emit(0, numbered(1, 50))
        body = msgspec.msgpack.decode(frontend.recv_output()[0])
        assert len(body[1][0]) == fields


@pytest.mark.parametrize("address", ["ipc", "tcp"])
def test_long_outputs_against_a_slow_reader(tmp_path: Path, address: str) -> None:
    """10,000 outputs over 64 KiB, of every shape, and as many short ones between them; the reader is slower than the
    writer, holds two messages at most, and the buffers are used again and again."""
    count, ahead = 10_000, 500
    shapes = (numbered, with_arrays, long_then_short)
    long = [shapes[number % 3](number, 70 * 1024) for number in range(51)]
    short = [shapes[number % 3](number, 100) for number in range(51)]
    with (
        RawFrontend(tmp_path if address == "ipc" else None, output_hwm=2) as frontend,
        running(frontend, budget=1024**3) as loop,
    ):
        for number in range(count + ahead):
            if number < count:
                loop.emit(0, long[number % 51])
                loop.emit(0, short[number % 51])
            if number % 10 == 0:
                time.sleep(0.001)  # the reader's slowness, not a wait for anything
            if number >= ahead:
                check(read_one(frontend), (number - ahead) % 51)
                check(read_one(frontend), (number - ahead) % 51)
        assert loop.counters.dropped_outputs == 0
        wait_until(lambda: loop.counters.pending_bytes == 0)
        assert len(loop.thread._pool) <= 2


def test_a_reader_that_never_reads(tmp_path: Path) -> None:
    """Its memory is bounded, it is reported once, the other client misses nothing; then it catches up."""
    with RawFrontend(tmp_path, num_clients=2, output_hwm=1) as frontend, running(frontend) as loop:
        count, held = 3000, 0
        for number in range(count):
            loop.emit(0, numbered(number, 10_000))
            loop.emit(1, numbered(number, 100))
            if number % 100 == 99:
                for earlier in range(number - 99, number + 1):
                    check(read_one(frontend, 1), earlier)
                held = max(held, loop.counters.pending_bytes)
        wait_until(lambda: loop.output_queue.empty())
        assert BUDGET // 2 < max(held, loop.counters.pending_bytes) <= BUDGET + 20_000
        assert loop.counters.dropped_outputs > count // 2
        assert loop.input_queue.get(timeout=TIMEOUT_S) == ClientGone(0)
        assert loop.input_queue.empty()
        got = count - loop.counters.dropped_outputs
        for number in range(got):
            check(read_one(frontend, 0), number)
        wait_until(lambda: loop.counters.pending_bytes == 0)
        lost = loop.input_queue.get(timeout=TIMEOUT_S)
        assert isinstance(lost, OutputsLost) and len(lost.request_ids) == count - got
        loop.emit(0, numbered(7, 10_000))
        check(read_one(frontend, 0), 7)
        for number in range(count, 2 * count):
            loop.emit(0, numbered(number, 10_000))
        assert loop.input_queue.get(timeout=TIMEOUT_S) == ClientGone(0)


def test_who_reads_again_hears_what_was_lost_once(tmp_path: Path) -> None:
    def token(name: str) -> EngineCoreOutput:
        return EngineCoreOutput(name, [7], stop_reason=NOISE[:10_000])

    def end(name: str) -> EngineCoreOutput:
        return EngineCoreOutput(name, [8], finish_reason=FinishReason.LENGTH)

    with RawFrontend(tmp_path, output_hwm=1) as frontend, running(frontend, budget=100_000) as loop:
        while not loop.counters.dropped_outputs:
            loop.emit(0, token("runs"))
            wait_until(lambda: loop.output_queue.empty() and not loop.thread._is_sending)
        loop.emit(0, end("ended"), token("cut"))
        loop.output_queue.put(Emit(0, EngineCoreOutputs(0, utility_output=codec.utility_answer(5, [1]))))
        wait_until(lambda: loop.counters.dropped_outputs == 3)
        heard: list[EngineCoreOutput] = []
        answers: list[UtilityOutput] = []

        def read() -> None:
            message = decode_outputs(frontend.recv_output(0, TIMEOUT_S))
            assert isinstance(message, EngineCoreOutputs)
            heard.extend(message.outputs)
            answers.extend([message.utility_output] if message.utility_output else [])

        while not answers:
            read()
        assert [output.request_id for output in heard if output.finished] == ["ended"]
        assert (answers[0].call_id, "dropped" in str(answers[0].failure_message)) == (5, True)
        assert loop.input_queue.get(timeout=TIMEOUT_S) == ClientGone(0)
        lost = loop.input_queue.get(timeout=TIMEOUT_S)
        assert isinstance(lost, OutputsLost) and sorted(lost.request_ids) == ["cut", "runs"]
        heard.clear()
        loop.emit(0, token("runs"), token("other"))
        loop.emit(0, token("cut"))
        loop.emit(0, end("cut"), end("runs"), end("other"))
        loop.emit(0, token("cut"))  # the id is used again
        while len(heard) < 5:
            read()
        seen = [(output.request_id, output.new_token_ids, output.finish_reason) for output in heard]
        assert seen == [
            ("other", [7], None),
            ("cut", [], FinishReason.ERROR),
            ("runs", [], FinishReason.ERROR),
            ("other", [8], FinishReason.LENGTH),
            ("cut", [7], None),
        ]
        assert loop.input_queue.empty()


def test_small_outputs_nobody_reads_are_counted_too(tmp_path: Path) -> None:
    """No connection at all: what libzmq holds is bounded by its high-water mark, the rest by bytes."""
    addresses = EngineZmqAddresses(inputs=["ipc:///unused"], outputs=[f"ipc://{tmp_path}/nobody"])
    loop = Loop(addresses, budget=100_000)
    loop.thread.start()
    for number in range(5000):
        loop.emit(0, EngineCoreOutput(str(number), [1]))
    assert loop.input_queue.get(timeout=TIMEOUT_S) == ClientGone(0)
    wait_until(loop.output_queue.empty)
    wait_until(lambda: loop.counters.dropped_outputs > 4000)
    assert loop.counters.pending_bytes <= 100_000
    loop.output_queue.put(LastWords())
    loop.thread.join(LAST_WORDS_S + 3)
    assert not loop.thread.is_alive()
    loop.context.destroy(linger=0)


def test_last_words_come_last_and_to_everybody() -> None:
    """The reader is slow. Over tcp: on ipc a full PULL whose peer closes loses what it has not taken (libzmq)."""
    with (
        RawFrontend(num_clients=3, output_hwm=1) as frontend,
        running(frontend, budget=1024**3, last_words_s=LAST_WORDS_S) as loop,
    ):
        for number in range(400):
            loop.emit(0, numbered(number, 20_000))
        loop.emit(1, numbered(1, 80_000))
        loop.output_queue.put(LastWords())
        for number in range(400):
            check(read_one(frontend, 0), number)
        check(read_one(frontend, 1), 1)
        for client in range(3):
            assert frontend.recv_output(client) == [ENGINE_CORE_DEAD]
        loop.thread.join(TIMEOUT_S)
        assert not loop.thread.is_alive()


def test_last_words_do_not_wait_for_ever(tmp_path: Path) -> None:
    """One client never reads: the others hear it at once, the thread ends within its time."""
    with RawFrontend(tmp_path, num_clients=2, output_hwm=1) as frontend:
        loop = Loop(frontend.addresses, budget=1024**3)
        loop.thread.start()
        for number in range(1000):
            loop.emit(0, numbered(number, 20_000))
        loop.output_queue.put(LastWords())
        assert frontend.recv_output(1, LAST_WORDS_S) == [ENGINE_CORE_DEAD]
        loop.thread.join(LAST_WORDS_S + 5)
        assert not loop.thread.is_alive()
        loop.context.destroy(linger=0)


def test_a_result_that_cannot_be_sent_is_its_calls_failure(tmp_path: Path) -> None:
    with RawFrontend(tmp_path) as frontend, running(frontend) as loop:
        broken = UtilityOutput(2**63 + 1, "half a character: \ud800")
        loop.output_queue.put(Emit(0, EngineCoreOutputs(utility_output=broken)))
        answer = decode_outputs(frontend.recv_output())
        assert isinstance(answer, EngineCoreOutputs) and answer.utility_output is not None
        assert answer.utility_output.call_id == 2**63 + 1
        assert "cannot be sent" in (answer.utility_output.failure_message or "")
        loop.output_queue.put(Emit(0, EngineCoreOutputs(utility_output=codec.utility_answer(5, [1]))))
        assert frontend.recv_output()


def test_an_output_for_nobody_is_dropped_and_counted(tmp_path: Path) -> None:
    with RawFrontend(tmp_path) as frontend, running(frontend) as loop:
        loop.emit(5, numbered(1, 50))
        loop.emit(0, numbered(2, 50))
        check(read_one(frontend), 2)
        assert loop.counters.dropped_outputs == 1


def test_death_is_posted() -> None:
    loop = Loop(EngineZmqAddresses(inputs=["ipc:///unused"], outputs=["carrier-pigeon://x"]))
    loop.thread.start()
    message = loop.input_queue.get(timeout=TIMEOUT_S)
    assert isinstance(message, ThreadDied) and message.name == "engine-out" and "ZMQError" in message.cause
    loop.thread.join(TIMEOUT_S)
    loop.context.destroy(linger=0)


def test_the_coordinator_has_a_socket_of_its_own(tmp_path: Path) -> None:
    with zmq.Context() as context, context.socket(zmq.PULL) as coordinator:
        address = f"ipc://{tmp_path}/c"
        coordinator.bind(address)
        with RawFrontend(tmp_path, coordinator=(address, address)) as frontend, running(frontend) as loop:
            loop.emit(-1, numbered(1, 50))
            assert coordinator.poll(10_000)
            message = decode_outputs(coordinator.recv_multipart())
            assert isinstance(message, EngineCoreOutputs) and message.outputs[0].request_id == "1"
            with pytest.raises(TimeoutError):
                frontend.recv_output(0, 0.2)


def test_idle_costs_nothing(tmp_path: Path) -> None:
    with RawFrontend(tmp_path) as frontend, running(frontend) as loop:
        loop.emit(0, numbered(1, 100_000))
        check(read_one(frontend), 1)
        clock = Path(f"/proc/self/task/{loop.thread.native_id}/status")

        def switches() -> int:
            lines = clock.read_text().splitlines()
            return int(next(line for line in lines if line.startswith("voluntary_ctxt_switches")).split()[1])

        wait_until(lambda: loop.thread._outboxes[0].is_settled)
        wait_until(lambda: switches() == (time.sleep(0.2), switches())[1])
        settled = switches()
        with pytest.raises(Empty):
            loop.input_queue.get(timeout=1.0)
        assert switches() - settled <= 2


def test_long_outputs_under_optimisation() -> None:
    """The thread works where every assert is gone."""
    script = (
        "import tempfile\nfrom pathlib import Path\nassert False\n"
        "from tests.engine.test_io_out import RawFrontend, Loop, Dialect, numbered, read_one\n"
        "with tempfile.TemporaryDirectory() as d, RawFrontend(Path(d)) as frontend:\n"
        "    loop = Loop(frontend.addresses); loop.thread.start()\n"
        "    [loop.emit(0, numbered(n, 70000)) for n in range(20)]\n"
        "    print([read_one(frontend).request_id for _ in range(20)] == [str(n) for n in range(20)])\n"
        "    loop.close()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-O", "-O", "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "True"
