"""How tokens/s and step time follow running requests, context length and prompt length, and where the curves bend.

A step's length is its whole turn: from one message of the engine to the next. A curve of running requests bends where
twice as many bring less than half more tokens/s; one of context length where a step takes a quarter longer than at the
shortest; a prompt's where its prefill rate is the highest.
usage: python -m bench.scaling MODEL_DIR [--only running,context,prompt] [--running 1,2,4,...] [--dtype float32] ..."""

from __future__ import annotations

import argparse
import time
from statistics import median

from bench.facts import note, print_result
from bench.steady import Steady, greedy, prompt
from engine.client import EngineConfig

SHORT = 8
"""Prompt tokens where the prompt is not the point."""
Curve = dict[str, dict[str, float]]


def turns_ms(engine: Steady, requests: int, length: int, tokens: int, first: int) -> list[float]:
    """Turns of full decode steps, ms."""
    for number in range(requests):
        engine.add(prompt(length, first + number), greedy(tokens))
    found: list[float] = []
    before: float | None = None
    while engine.live:
        message = engine.next()
        stats = message.scheduler_stats
        is_full = stats is not None and stats.num_scheduled_tokens == requests and stats.num_prefill_tokens == 0
        if is_full and before is not None:
            found.append((message.timestamp - before) * 1e3)
        before = message.timestamp if is_full else None
    if not found:
        raise SystemExit(f"no two steps in a row had all {requests} requests: more --tokens are needed")
    return found


def running_curve(engine: Steady, given: argparse.Namespace) -> Curve:
    found: Curve = {}
    for requests in given.running:
        turn = median(turns_ms(engine, requests, SHORT, given.tokens, requests * 1000))
        found[str(requests)] = {"step_ms": round(turn, 3), "tok_s": round(requests / turn * 1e3, 1)}
        note(f"{requests} running: {found[str(requests)]}")
    return found


def context_curve(engine: Steady, given: argparse.Namespace) -> Curve:
    found: Curve = {}
    for length in given.context:
        turn = median(turns_ms(engine, given.context_running, length, given.tokens, length * 1000))
        found[str(length)] = {"step_ms": round(turn, 3), "tok_s": round(given.context_running / turn * 1e3, 1)}
        note(f"context {length}: {found[str(length)]}")
    return found


def prompt_curve(engine: Steady, given: argparse.Namespace) -> Curve:
    found: Curve = {}
    for length in given.prompt:
        times = []
        for round_ in range(given.prompt_rounds):
            began = time.perf_counter()
            engine.add(prompt(length, length * 1000 + round_), greedy(1))
            engine.finish()
            times.append(time.perf_counter() - began)
        first = median(times)
        found[str(length)] = {"first_token_ms": round(first * 1e3, 2), "prefill_tok_s": round(length / first, 1)}
        note(f"prompt {length}: {found[str(length)]}")
    return found


def bend_of_running(curve: Curve) -> int | None:
    """The first number of requests from which on twice as many bring less than 1.5 times the tokens/s."""
    sizes = sorted(map(int, curve))
    for size in sizes:
        if 2 * size in sizes and curve[str(2 * size)]["tok_s"] < 1.5 * curve[str(size)]["tok_s"]:
            return size
    return None


def bend_of_context(curve: Curve) -> int | None:
    """The shortest context at which a step takes 1.25 times as long as at the shortest."""
    sizes = sorted(map(int, curve))
    return next((n for n in sizes if curve[str(n)]["step_ms"] > 1.25 * curve[str(sizes[0])]["step_ms"]), None)


def result(curves: dict[str, Curve]) -> dict[str, object]:
    found: dict[str, object] = dict(curves)
    if running := curves.get("running"):
        found["running_bends_at"] = bend_of_running(running)
        if "1" in running:
            rates = {size: round(row["tok_s"] / running["1"]["tok_s"], 2) for size, row in running.items()}
            found["tok_s_per_one_request"] = rates
    if context := curves.get("context"):
        found["context_bends_at"] = bend_of_context(context)
    if prompts := curves.get("prompt"):
        found["prompt_fastest_at"] = int(max(prompts, key=lambda size: prompts[size]["prefill_tok_s"]))
    return found


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def config(given: argparse.Namespace) -> EngineConfig:
    longest = max([*given.context, *given.prompt]) + given.tokens + 1
    blocks = max(max(given.running) * (-(-(SHORT + given.tokens) // 16)), given.context_running * (-(-longest // 16)))
    return EngineConfig(
        model=given.model, executor=given.executor, dtype=given.dtype, threads=given.threads, max_model_len=longest,
        max_num_seqs=max([*given.running, given.context_running]), num_gpu_blocks=blocks + 8,
        enable_prefix_caching=False,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--only", default="running,context,prompt", help="which curves")
    parser.add_argument("--running", type=numbers, default=[1, 2, 4, 8, 16, 32, 64, 128])
    parser.add_argument("--context", type=numbers, default=[64, 256, 512, 1000, 1500, 2000])
    parser.add_argument("--prompt", type=numbers, default=[16, 64, 256, 512, 1000, 2000])
    parser.add_argument("--tokens", type=int, default=24, help="of each request")
    parser.add_argument("--context-running", type=int, default=8, help="requests at once while the context is varied")
    parser.add_argument("--prompt-rounds", type=int, default=3)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--executor", default="uniproc")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    curves = {"running": running_curve, "context": context_curve, "prompt": prompt_curve}
    engine = Steady(config(given))
    try:
        turns_ms(engine, 1, SHORT, 4, 0)  # caches, allocator, first steps
        found = {name: curve(engine, given) for name, curve in curves.items() if name in given.only.split(",")}
    finally:
        engine.close()
    print_result("scaling", given, result(found))


if __name__ == "__main__":
    main()
