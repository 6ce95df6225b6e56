"""The engine's own loop, with an executor that runs no model: tokens/s and steps/s at 1, 64 and 256 running requests.

What is left is scheduler, loop, IO threads and codec. The frontend here reads raw frames, so that it is not what is
measured; it and the engine share the machine's cores. Best of three rounds.
usage: python -m bench.loop MODEL_DIR [--rounds 3]"""

from __future__ import annotations

import argparse
import time

import msgspec

from bench.facts import note, print_result
from engine.client import EngineConfig, SamplingParams, new_request
from engine.client.start import StartedEngine, start_engine
from engine.codec import encode_request

SIZES = ((1, 1500), (64, 500), (256, 300))
"""Requests at once, tokens of each."""
SILENCE_MS = 60_000


class _Output(msgspec.Struct, array_like=True):
    """As much of an output as is counted."""

    request_id: str
    new_token_ids: list[int]
    logprobs: msgspec.Raw = msgspec.Raw(b"\xc0")
    prompt_logprobs: msgspec.Raw = msgspec.Raw(b"\xc0")
    pooling: msgspec.Raw = msgspec.Raw(b"\xc0")
    finish_reason: int | None = None


class _Outputs(msgspec.Struct, array_like=True):
    engine_index: int
    outputs: list[_Output]


def one_round(started: StartedEngine, requests: int, tokens: int, round_: int) -> dict[str, float]:
    decoder = msgspec.msgpack.Decoder(_Outputs)
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    began = last = time.perf_counter()
    for n in range(requests):
        request = new_request([n + 5, round_ + 9, 7, 8, 9, 10, 11, 12], params)
        started.input_socket.send_multipart([started.identity, *encode_request(request)])
    steps = finished = received = 0
    while finished < requests:
        if not started.output_socket.poll(SILENCE_MS):
            raise SystemExit("the engine fell silent")
        message = decoder.decode(started.output_socket.recv_multipart()[0])
        if message.outputs:
            steps += 1
            last = time.perf_counter()
            received += sum(len(output.new_token_ids) for output in message.outputs)
            finished += sum(output.finish_reason is not None for output in message.outputs)
    return {"tok_s": round(received / (last - began)), "steps_s": round(steps / (last - began))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="its config.json is all that is read")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    config = EngineConfig(
        model=given.model, executor="null", max_num_seqs=256, num_gpu_blocks=256 * 32, max_model_len=2048
    )
    started = start_engine(config)
    result: dict[str, object] = {}
    try:
        for requests, tokens in SIZES:
            rounds = [one_round(started, requests, tokens, round_) for round_ in range(given.rounds)]
            result[str(requests)] = max(rounds, key=lambda found: found["tok_s"])
            note(f"{requests} requests: {result[str(requests)]}")
    finally:
        started.abandon()
    print_result("loop", given, result)


if __name__ == "__main__":
    main()
