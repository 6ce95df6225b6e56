"""A frontend for benchmarks of one engine process: adds requests, reads of each step what is counted, and no more.

Owned by the benchmark's only thread; close() ends the engine too."""

from __future__ import annotations

import time

import msgspec

from bench.wire import Output, poll_ms
from engine.client import EngineConfig, SamplingParams, new_request
from engine.client.start import start_engine
from engine.codec import encode_request
from engine.messages import AbortIds

SILENCE_S = 300.0
END_S = 30.0


class Timings(msgspec.Struct):
    total_ms: float = 0.0


class Stats(msgspec.Struct):
    num_scheduled_tokens: int = 0
    num_prefill_tokens: int = 0
    step_timings: Timings | None = None


class Message(msgspec.Struct, array_like=True):
    engine_index: int
    outputs: list[Output]
    scheduler_stats: Stats | None = None
    timestamp: float = 0.0
    """The engine's monotonic clock, s, when the loop gave it away."""


class Steady:
    def __init__(self, config: EngineConfig) -> None:
        began = time.perf_counter()
        self.started = start_engine(config)
        self.start_s = time.perf_counter() - began
        """Spawn to READY."""
        self.live: set[str] = set()
        self.received_bytes = 0
        self._decode = msgspec.msgpack.Decoder(Message).decode

    @property
    def pid(self) -> int:
        return self.started.process.pid

    def add(self, prompt: list[int], params: SamplingParams) -> None:
        request = new_request(prompt, params)
        self.live.add(request.request_id)
        self._send(encode_request(request))

    def next(self) -> Message:
        """The next message with outputs. Blocks."""
        while True:
            if not self.started.output_socket.poll(poll_ms(SILENCE_S)):
                raise SystemExit("the engine fell silent")
            frames = self.started.output_socket.recv_multipart()
            if len(frames[0]) < 100 and frames[0] == b"ENGINE_CORE_DEAD":
                raise SystemExit(self.started.process.describe_end())
            self.received_bytes += sum(map(len, frames))
            message = self._decode(frames[0])
            if message.outputs:
                self.live -= {output.request_id for output in message.outputs if output.finish_reason is not None}
                return message

    def finish(self) -> None:
        """Reads until nothing lives."""
        while self.live:
            self.next()

    def abort(self) -> None:
        """Ends what lives, and reads until it has."""
        self._send(encode_request(AbortIds(sorted(self.live))))
        self.finish()

    def close(self) -> None:
        """The engine has time to write down what its executor noted. SystemExit when it had to be killed."""
        self.started.process.stop(END_S)
        end = None if self.started.process.exit_status() == 0 else self.started.process.describe_end()
        self.started.abandon()
        if end is not None:
            raise SystemExit(end)

    def _send(self, frames: list[bytes]) -> None:
        self.started.input_socket.send_multipart([self.started.identity, *frames])


def greedy(tokens: int, **more: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, **more)  # type: ignore[arg-type]


def prompt(length: int, number: int) -> list[int]:
    """No two are alike from their first token on."""
    return [10 + (number * 131 + place * 7) % 250 for place in range(length)]
