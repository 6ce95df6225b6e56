"""How much of the time for serialisation and sockets is hidden behind the forward pass, with logprobs on.

One engine process for each number of requests. It notes when its executor computes, and when engine-in decodes and
engine-out encodes and sends. `hidden_share` is the part of the second that lies within the first. What it waits for the
interpreter counts as its time: so does the loop's when it waits for the threads.
usage: python -m bench.overlap MODEL_DIR [--running 32,128] [--logprobs 5] [--tokens 24] [--threads N]"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.facts import note, print_result
from bench.scaling import numbers
from bench.steady import Steady, greedy, prompt
from engine.client import EngineConfig

FILE = "BENCH_OVERLAP_FILE"
LENGTH = 8
Interval = tuple[float, float]


def seconds(intervals: Sequence[Interval]) -> float:
    return sum(end - began for began, end in intervals)


def within(inner: Sequence[Interval], outer: Sequence[Interval]) -> float:
    """Seconds of `inner` that lie in `outer`, whose intervals are in order and apart."""
    found, place = 0.0, 0
    for began, end in sorted(inner):
        while place < len(outer) and outer[place][1] <= began:
            place += 1
        at = place
        while at < len(outer) and outer[at][0] < end:
            found += min(end, outer[at][1]) - max(began, outer[at][0])
            at += 1
    return found


def summarise(noted: dict[str, list[Interval]], received_bytes: int) -> dict[str, float]:
    computing, io = noted["computing"], noted["io"]
    hidden, total, steps = within(io, computing), seconds(io), len(computing)
    return {
        "steps": steps,
        "forward_ms_per_step": round(seconds(computing) / steps * 1e3, 3),
        "io_ms_per_step": round(total / steps * 1e3, 3),
        "exposed_ms_per_step": round((total - hidden) / steps * 1e3, 3),
        "hidden_share": round(hidden / total, 4),
        "bytes_per_step": round(received_bytes / steps),
    }


def measure(given: argparse.Namespace, requests: int, path: Path) -> dict[str, float]:
    length = LENGTH + given.tokens + 1
    config = EngineConfig(
        model=given.model, executor="bench.overlap_watch:Uniproc", threads=given.threads, kernels=given.kernels,
        max_model_len=length, max_num_seqs=requests, num_gpu_blocks=requests * (-(-length // 16)),
        enable_prefix_caching=False,
    )  # fmt: skip
    os.environ[FILE] = str(path)
    engine = Steady(config)
    try:
        for _ in range(given.rounds):
            for number in range(requests):
                engine.add(prompt(LENGTH, number), greedy(given.tokens, logprobs=given.logprobs))
            engine.finish()
    finally:
        engine.close()
    return summarise(json.loads(path.read_text()), engine.received_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--running", type=numbers, default=[32, 128])
    parser.add_argument("--logprobs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=24, help="of each request")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--kernels", default="auto")
    given = parser.parse_args()
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as home:
        for requests in given.running:
            result[str(requests)] = measure(given, requests, Path(home) / f"{requests}.json")
            note(f"{requests} running: {result[str(requests)]}")
    print_result("overlap", given, result)


if __name__ == "__main__":
    main()
