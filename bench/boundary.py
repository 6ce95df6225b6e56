"""What the process boundary costs: tokens/s through SyncMPClient against InprocClient, in turn, in one run.

A ratio is that of two neighbours, each of which is the first in every other round: clocks move within a run.

usage: python -m bench.boundary MODEL_DIR [--executor null] [--requests 32] [--tokens 128] [--rounds 15]"""

from __future__ import annotations

import argparse
import time
from statistics import median

from bench.facts import note, print_result
from engine.client import EngineConfig, InprocClient, SamplingParams, SyncMPClient, new_request


def tokens_per_s(client: InprocClient | SyncMPClient, requests: int, tokens: int, round_: int) -> float:
    """All requests at once, greedy, from the first add to the last output."""
    params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
    began = time.perf_counter()
    ids = [client.add(new_request([10 + n, 20 + round_, 7, 8, 9, 10, 11, 12], params)) for n in range(requests)]
    received = sum(len(output.new_token_ids) for request_id in ids for output in client.stream(request_id))
    if received != requests * tokens:
        raise SystemExit(f"{received} tokens came, {requests * tokens} were asked for")
    return received / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--executor", default="uniproc")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    config = EngineConfig(
        model=given.model, executor=given.executor, threads=given.threads, max_model_len=given.tokens + 64,
        max_num_seqs=given.requests, num_gpu_blocks=(given.tokens // 16 + 2) * given.requests,
    )  # fmt: skip
    rates: dict[str, list[float]] = {"inproc": [], "sync": []}
    with InprocClient(config) as inproc, SyncMPClient(config) as sync:
        clients: dict[str, InprocClient | SyncMPClient] = {"inproc": inproc, "sync": sync}
        for name, client in clients.items():
            tokens_per_s(client, given.requests, min(8, given.tokens), -1)  # caches, allocator, first steps
            note(f"{name} is warm")
        for round_ in range(given.rounds):
            for name, client in sorted(clients.items(), reverse=round_ % 2 == 1):
                rates[name].append(round(tokens_per_s(client, given.requests, given.tokens, round_), 1))
                note(f"round {round_}: {name} {rates[name][-1]:,.0f} tokens/s")
    ratios = [sync / inproc for sync, inproc in zip(rates["sync"], rates["inproc"], strict=True)]
    result: dict[str, object] = {
        "tok_s": rates,
        "median_tok_s": {name: median(values) for name, values in rates.items()},
        "sync_per_inproc": round(median(ratios), 4),
        "sync_per_inproc_rounds": [round(ratio, 4) for ratio in ratios],
    }
    print_result("boundary", given, result)


if __name__ == "__main__":
    main()
