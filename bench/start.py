"""Spawn to READY on a cached model, and how the first request after READY compares with the tenth.

Each round is a new engine process: ten requests one after the other, all alike but for their prompt. What is built or
read only once (compiled kernels, the file cache) is there after the first round, which does not count.
usage: python -m bench.start MODEL_DIR [--rounds 3] [--tokens 16] [--length 32] [--threads N]"""

from __future__ import annotations

import argparse
import time
from statistics import median

from bench.facts import note, print_result
from bench.steady import Steady, greedy, prompt
from engine.client import EngineConfig

REQUESTS = 10


def one_round(given: argparse.Namespace, round_: int) -> dict[str, float]:
    config = EngineConfig(
        model=given.model, executor=given.executor, dtype=given.dtype, threads=given.threads, max_model_len=2048,
        kv_memory=1024**3, enable_prefix_caching=False,
    )  # fmt: skip
    engine = Steady(config)
    try:
        times = []
        for number in range(REQUESTS):
            began = time.perf_counter()
            engine.add(prompt(given.length, round_ * REQUESTS + number), greedy(given.tokens))
            engine.finish()
            times.append((time.perf_counter() - began) * 1e3)
    finally:
        engine.close()
    return {
        "start_s": round(engine.start_s, 3),
        "first_ms": round(times[0], 2),
        "tenth_ms": round(times[-1], 2),
        "first_per_tenth": round(times[0] / times[-1], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--length", type=int, default=32, help="prompt tokens")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--executor", default="uniproc")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    rounds = []
    for round_ in range(given.rounds + 1):
        rounds.append(one_round(given, round_))
        note(f"round {round_}: {rounds[-1]}")
    counted = rounds[1:]
    middle = {name: round(median(row[name] for row in counted), 3) for name in counted[0]}
    print_result("start", given, {**middle, "rounds": rounds})


if __name__ == "__main__":
    main()
