"""A neutral frontend of one engine, whoever wrote the engine: bare sockets, the same frames for all.

Enters: a command with {port} in it. Leaves: times and counts. Nothing of the engine's package is used, so that nobody
is measured with a client of his own. Reads as little of an output as it needs: the frontend takes its CPU from the
same cores. Owned by one thread; every wait ends at the deadline of the run. Dies by close(), with the engine."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import msgspec
import zmq

from bench.session import Session

ADD, ABORT, UTILITY = b"\x00", b"\x01", b"\x03"
DEAD = b"ENGINE_CORE_DEAD"
LOOK_EVERY_S = 0.2
ROOT = Path(__file__).resolve().parent.parent
SKIPPED = msgspec.Raw(b"\xc0")


class RunFailed(Exception):
    """This run gives no figures: the engine died, said something else than it should, or the time is up."""


class Output(msgspec.Struct, array_like=True):
    """As much of an output as is counted; what stands behind is skipped."""

    request_id: str
    new_token_ids: list[int]
    logprobs: msgspec.Raw = SKIPPED
    prompt_logprobs: msgspec.Raw = SKIPPED
    pooling: msgspec.Raw = SKIPPED
    finish_reason: int | None = None


class Answer(msgspec.Struct, array_like=True):
    call_id: int
    failure: str | None = None
    result: msgspec.Raw = SKIPPED


class Outputs(msgspec.Struct, array_like=True):
    engine_index: int
    outputs: list[Output] | None = None
    stats: msgspec.Raw = SKIPPED
    timestamp: float = 0.0
    answer: Answer | None = None


def poll_ms(seconds: float) -> int:
    """For zmq's poll, which takes whole milliseconds: cut down to 0 a wait would spin, on cores the engine wants."""
    return max(1, math.ceil(seconds * 1000))


class Wire:
    """The sockets, and what has come through them. start() spawns the engine and waits until it is ready."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log_path: Path, deadline_s: float):
        self.command, self.environment, self.log_path = command, environment, log_path
        self.end = time.perf_counter() + deadline_s
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._handshake, self._input, self._output = (
            self.context.socket(kind) for kind in (zmq.ROUTER, zmq.ROUTER, zmq.PULL)
        )
        for socket in (self._handshake, self._input, self._output):
            for option in (zmq.SNDHWM, zmq.RCVHWM, zmq.LINGER):
                socket.setsockopt(option, 0)
            socket.bind("tcp://127.0.0.1:0")
        self.session: Session | None = None
        self.identity = b""
        self.ready: dict[str, object] = {}
        self._encode, self._decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Outputs).decode
        self._calls = 0
        self.answered: dict[int, float] = {}
        """When the answer to a call came, by its id; whoever waits for it takes it out."""
        self.live: set[str] = set()
        self.first_at: dict[str, float] = {}
        self.messages: list[tuple[float, int]] = []
        """(when, tokens) of every message with outputs."""
        self.most_tokens_an_output = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
        self.context.destroy(linger=0)

    # ------------------------------------------------------------ start

    def start(self) -> tuple[float, float]:
        """Seconds from the spawn to HELLO, and to READY with the ready response."""
        port = _endpoint(self._handshake).rpartition(":")[2]
        began = time.perf_counter()
        self.session = Session([part.replace("{port}", port) for part in self.command], self.environment,
                               self.log_path, ROOT)  # fmt: skip
        self.identity, _ = self._expect(self._handshake, "HELLO")
        hello_s = time.perf_counter() - began
        self._handshake.send_multipart([self.identity, self._encode(self._init())])
        _, ready = self._expect(self._input, "ready response")
        self.ready = msgspec.msgpack.decode(ready)
        self._expect(self._handshake, "READY")
        return hello_s, time.perf_counter() - began

    def _init(self) -> dict[str, object]:
        addresses = {"inputs": [_endpoint(self._input)], "outputs": [_endpoint(self._output)],
                     "coordinator_input": None, "coordinator_output": None,
                     "frontend_stats_publish_address": None}  # fmt: skip
        return {"addresses": addresses, "parallel_config": {}}

    def _expect(self, socket: zmq.Socket[bytes], what: str) -> list[bytes]:
        while not socket.poll(poll_ms(LOOK_EVERY_S)):
            self._check(what)
        return socket.recv_multipart()

    def _check(self, what: str) -> None:
        """Raises RunFailed when there is no hope for it."""
        assert self.session is not None
        status = self.session.process.poll()
        if status is not None:
            raise RunFailed(f"the engine ended with status {status} before {what}, see {self.log_path}")
        if time.perf_counter() > self.end:
            raise RunFailed(f"the deadline of the run passed, waiting for {what}, see {self.log_path}")

    # ------------------------------------------------------------ out

    def add(self, request_id: str, prompt: Sequence[int], tokens: int, **sampling: float) -> None:
        """Greedy unless told otherwise, and exactly so many tokens."""
        params = {"temperature": 0.0, "max_tokens": tokens, "ignore_eos": True, **sampling}
        body = [request_id, prompt, None, params, None, time.time(), None, None, None]
        self.live.add(request_id)
        self._send(ADD, body)

    def abort(self, request_ids: Sequence[str]) -> None:
        """They count as gone from now on: some engines answer an abort, some do not."""
        self._send(ABORT, list(request_ids))
        self.live.difference_update(request_ids)

    def ask(self, name: str) -> int:
        """Sends a call without arguments; its id."""
        self._calls += 1
        self._send(UTILITY, [0, self._calls, name, []])
        return self._calls

    def _send(self, kind: bytes, body: object) -> None:
        self._input.send_multipart([self.identity, kind, self._encode(body)])

    # ------------------------------------------------------------ in

    def receive(self, timeout_s: float) -> bool:
        """Takes one message if one comes in time. Raises RunFailed when the engine is dead or the time is up."""
        if not self._output.poll(poll_ms(timeout_s)):
            self._check("the next message")
            return False
        frame = self._output.recv_multipart()[0]
        now = time.perf_counter()
        if frame == DEAD:
            raise RunFailed(f"the engine died, see {self.log_path}")
        if now > self.end:
            self._check("the last message")
        message = self._decode(frame)
        if message.outputs:
            self._take(message.outputs, now)
        if message.answer is not None:
            if message.answer.failure is not None:
                raise RunFailed(f"a call failed: {message.answer.failure}")
            self.answered[message.answer.call_id] = now
        return True

    def _take(self, outputs: list[Output], now: float) -> None:
        tokens = 0
        for output in outputs:
            count = len(output.new_token_ids)
            tokens += count
            if count > self.most_tokens_an_output:
                self.most_tokens_an_output = count
            if output.request_id not in self.first_at:
                self.first_at[output.request_id] = now
            if output.finish_reason is not None:
                self.live.discard(output.request_id)
        self.messages.append((now, tokens))

    def call(self, name: str) -> float:
        """Seconds from question to answer."""
        began = time.perf_counter()
        call_id = self.ask(name)
        while call_id not in self.answered:
            self.receive(LOOK_EVERY_S)
        return self.answered.pop(call_id) - began

    def wait_all(self) -> float:
        """Until no request lives; when the last message came."""
        while self.live:
            self.receive(LOOK_EVERY_S)
        return self.messages[-1][0]

    def forget(self) -> None:
        """What was counted so far, so that the next measurement counts its own."""
        self.messages.clear()
        self.first_at.clear()


def _endpoint(socket: zmq.Socket[bytes]) -> str:
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)
