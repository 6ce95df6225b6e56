"""The compiled step against torch and against what the machine can do: products, whole steps, distance.

limits     what this machine reads and multiplies at best, in pairs of bfloat16 where the step does (not by tiles, whose
           products may pass it), measured first, on as many threads
products   one matrix of each kind times 1, 8, 32 and 512 rows: us, GB/s of weights, share of the nearer limit
steps      whole steps, compiled and torch in turn: ms at 1, 8 and 32 rows over --contexts, and a 512-token prompt
distance   logits and perplexity on a fixed text: compiled against torch, both with the same rounded weights

The shortest of the rounds counts: it is the one that was disturbed least. With one thread CPU time is measured, so
that a busy machine disturbs little.
usage: python -m bench.kernels MODEL_DIR [--threads N] [--rounds 7] [--dtype bfloat16] [--quantization none|int8|int4]
       [--contexts 64 512 2000]"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from bench.facts import note, print_result
from engine.model.attention import KVCache
from engine.model.config import ModelConfig
from engine.model.decoder import Decoder
from engine.model.device import choose_target
from engine.model.inputs import Row
from engine.model.loader import Target, load_weights
from engine.model.native.bindings import Matrix
from engine.model.native.decoder import NativeDecoder
from engine.model.native.kernels import Kernels
from engine.model.quantise import BITS, GROUP, HEAD_BITS, round_weights

BLOCK_SIZE, PROMPT, CONTEXTS = 16, 512, (64, 512, 2000)
REQUESTS = (1, 8, 32)
ROWS = (*REQUESTS, 512)
CPU = torch.device("cpu")
Pair = tuple[NativeDecoder | Decoder, KVCache]
TEXT = (
    "The lighthouse stood at the end of a long, narrow spit of sand. Every evening, shortly before the sun went down, "
    "an old man walked out to it with a lantern and a loaf of bread. Nobody in the village knew what he did there "
    "through the night. Some said that he counted the ships; others, that he wrote letters to people who had died. In "
    "truth he slept, woke at four to wind the clock that turned the lamp, and slept again. One winter the clock broke. "
    "He took it apart on the stone floor, cleaned every wheel with oil and a goose feather, and found that a single "
    "tooth had worn away. He cut a new one out of brass, by the light of the lamp that no longer turned, while two "
    "ships waited outside the harbour because they could not tell the light from a star."
)


def shortest(run: Callable[[], object], rounds: int) -> float:
    """Seconds, of the shortest run after one that does not count."""
    run()
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    found = math.inf
    for _ in range(rounds):
        began = clock()
        run()
        found = min(found, clock() - began)
    return found


def limits(native: NativeDecoder, rounds: int) -> dict[str, float]:
    values = torch.ones(64 * 1024**2)
    read_s = shortest(lambda: native.read(values), rounds)
    tasks = 64 * native.threads
    multiply_s = shortest(lambda: native.multiply_adds(tasks), rounds)
    return {
        "read_gb_s": round(values.numel() * 4 / read_s / 1e9, 2),
        "gflop_s": round(2 * native.multiply_adds(tasks) / multiply_s / 1e9, 1),
    }


def products(native: NativeDecoder, rounds: int, most: dict[str, float]) -> dict[str, dict[str, float]]:
    """Each round takes the matrix of every layer in turn, so that no cache holds the next one."""
    config, found = native.config, {}
    shapes = {
        Matrix.QKV: (config.q_size + 2 * config.kv_size, config.hidden_size),
        Matrix.O: (config.hidden_size, config.q_size),
        Matrix.GATE: (2 * config.intermediate_size, config.hidden_size),
        Matrix.DOWN: (config.hidden_size, config.intermediate_size),
        Matrix.HEAD: (config.vocab_size, config.hidden_size),
    }
    for name, (outputs, inputs) in shapes.items():
        layers = 1 if name is Matrix.HEAD else config.num_layers
        for count in ROWS[: 3 if name is Matrix.HEAD else 4]:
            rows, out = torch.randn(count, inputs), torch.empty(count, outputs + 128)
            run = lambda: [native.product(layer, name, rows, out) for layer in range(layers)]  # noqa: B023, E731
            seconds = shortest(run, rounds) / layers
            weights_gb = outputs * inputs * bytes_of_weight(native, name) / 1e9
            gflop = 2e-9 * outputs * inputs * count
            best = max(weights_gb / most["read_gb_s"], gflop / most["gflop_s"])
            found[f"{name.name.lower()} {outputs}x{inputs} rows {count}"] = {
                "us": round(seconds * 1e6, 1),
                "weights_gb_s": round(weights_gb / seconds, 2),
                "gflop_s": round(gflop / seconds, 1),
                "share_of_limit": round(best / seconds, 3),
            }
    return found


def bytes_of_weight(native: NativeDecoder, name: Matrix) -> float:
    """As they are kept; codes with the scale of their group, and its lowest value where there is one."""
    if not native.bits:
        return native.storage.itemsize
    bits = HEAD_BITS if name is Matrix.HEAD else native.bits
    return bits / 8 + 4 / GROUP[bits]


def blocks_of(context: int) -> int:
    return max(context, PROMPT) // BLOCK_SIZE + 1


def steps(
    native: NativeDecoder, eager: Decoder, caches: list[KVCache], rounds: int, contexts: list[int]
) -> dict[str, dict[str, float]]:
    """Hidden states, logits and the greedy tokens, as a step of plain greedy requests needs them."""
    each = blocks_of(max(contexts))
    tables = [np.arange(row * each, (row + 1) * each) for row in range(max(REQUESTS))]
    cases = {
        f"decode {count} context {context}": [Row([7], context, 1, table, kept=1) for table in tables[:count]]
        for context in contexts
        for count in REQUESTS
    }
    prompt = [index % 100 + 5 for index in range(PROMPT)]
    cases[f"prefill {PROMPT}"] = [Row(prompt, 0, PROMPT, tables[0], kept=1)]
    pairs: list[Pair] = [(native, caches[0]), (eager, caches[1])]
    found = {}
    for name, rows in cases.items():
        best = [math.inf, math.inf]
        for _ in range(max(2, rounds // 2)):
            for place, (decoder, cache) in enumerate(pairs):
                run = lambda: decoder.greedy(decoder.run(rows, cache))  # noqa: B023, E731
                best[place] = min(best[place], shortest(run, 1))
        found[name] = {
            "native_ms": round(best[0] * 1e3, 2),
            "eager_ms": round(best[1] * 1e3, 2),
            "eager_per_native": round(best[1] / best[0], 2),
        }
        note(f"{name}: {found[name]}")
    return found


def distance(native: NativeDecoder, eager: Decoder, caches: list[KVCache], ids: list[int]) -> dict[str, float]:
    row = [Row(ids, 0, len(ids), np.arange(blocks_of(len(ids))))]
    pairs: list[Pair] = [(native, caches[0]), (eager, caches[1])]
    logits = [decoder.logits(decoder.run(row, cache)) for decoder, cache in pairs]
    following = torch.tensor(ids[1:])
    losses = [torch.nn.functional.cross_entropy(found[:-1].double(), following) for found in logits]
    gap = (logits[0] - logits[1]).abs()
    return {
        "tokens": len(ids),
        "max_logit": round(float(logits[1].abs().max()), 3),
        "max_difference": round(float(gap.max()), 5),
        "mean_difference": round(float(gap.mean()), 6),
        "perplexity_native": round(float(losses[0].exp()), 4),
        "perplexity_eager": round(float(losses[1].exp()), 4),
        "same_best_token": round(float((logits[0].argmax(-1) == logits[1].argmax(-1)).float().mean()), 4),
    }


def load_both(model: Path, dtype: str, threads: int, bits: int) -> tuple[NativeDecoder, Decoder, Target]:
    config = ModelConfig.from_dir(model)
    target = choose_target(dtype, config.dtype, "cpu")
    library = Kernels("native", config, target, bits).library()
    if library is None:
        raise SystemExit(f"the compiled step does not run this model in {dtype}")
    weights = load_weights(model, config, target, note)
    eager = Decoder(config, round_weights(weights, bits), config.max_position_embeddings)
    native = NativeDecoder(library, config, eager.rope, target.storage, threads, BLOCK_SIZE, bits=bits)
    native.take(weights, threads)
    return native, eager, target


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--quantization", choices=BITS, default="none")
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    native, eager, target = load_both(given.model, given.dtype, given.threads, BITS[given.quantization])
    blocks = max(REQUESTS) * blocks_of(max(given.contexts))
    caches = [KVCache(eager.config, blocks, BLOCK_SIZE, target.storage, CPU) for _ in range(2)]
    for cache in caches:
        cache.keys.zero_()
        cache.values.zero_()
    most = limits(native, given.rounds)
    note(f"limits: {most}")
    ids = Tokenizer.from_file(str(given.model / "tokenizer.json")).encode(TEXT).ids
    result: dict[str, object] = {
        "cpu_code": native.description,
        "limits": most,
        "distance": distance(native, eager, caches, ids),
        "steps": steps(native, eager, caches, given.rounds, given.contexts),
        "products": products(native, given.rounds, most),
    }
    print_result("kernels", given, result)


if __name__ == "__main__":
    main()
