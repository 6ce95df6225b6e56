"""What is measured of an engine that is ready: each function is one group of rows, over the wire alone.

Enters: a Wire whose engine is ready, and how much of everything. Leaves: a flat dictionary of figures. The same
requests for every engine; each group leaves the engine idle."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from bench.facts import percentile
from bench.wire import LOOK_EVERY_S, RunFailed, Wire

NEIGHBOUR = "neighbour"
READ_ONLY_CALL = "is_sleeping"
PROMPT = [504, 1463, 282, 260, 4919, 4576, 6463, 351]
FIRST_ID, IDS = 300, 30_000
"""Made-up prompts use token ids of this range, which any vocabulary of the field has."""

Figures = dict[str, float]


@dataclass(frozen=True)
class Load:
    """How much of everything; tests take less."""

    first_requests: int = 10
    calls: int = 300
    decode: tuple[tuple[int, int], ...] = ((1, 3), (8, 2), (32, 2))
    """Requests at once, and how often: the best counts."""
    decode_tokens: int = 128
    mixed: tuple[int, ...] = (3, 17, 50)
    mixed_tokens: int = 64
    prompt_tokens: int = 1500
    prompts: int = 3
    running: int = 32
    running_tokens: int = 1500
    settle_s: float = 1.0
    watch_steps: int = 200
    watch_s: tuple[float, float] = (5.0, 120.0)
    """At least so long, and until there were so many steps, but no longer than so. A step grows with what there is to
    attend to, so percentiles compare over equally many."""
    ask_every_s: float = 0.05
    small: int = 400
    beside_neighbour: tuple[tuple[int, int], ...] = ((1, 1), (8, 1), (32, 1))
    """As decode, while a neighbour keeps one core busy."""
    vocabulary: int | None = None
    """Ids stay below it; None: those written here."""


def prompt_of(load: Load, *ids: int) -> list[int]:
    return [token % load.vocabulary for token in ids] if load.vocabulary else list(ids)


def first_requests(wire: Wire, load: Load) -> Figures:
    """One after the other from the first instant: who compiles or warms up late shows it here."""
    took = []
    for n in range(load.first_requests):
        began = time.perf_counter()
        wire.add(f"first-{n}", prompt_of(load, n + 20, *PROMPT), 8)
        took.append(wire.wait_all() - began)
    return {
        "first_request_ms": took[0] * 1e3,
        "tenth_request_ms": took[-1] * 1e3,
        "first_per_tenth": took[0] / took[-1],
    }


def idle_calls(wire: Wire, load: Load) -> Figures:
    wire.call(READ_ONLY_CALL)
    took = [wire.call(READ_ONLY_CALL) * 1e3 for _ in range(load.calls)]
    return {"call_idle_p50_ms": percentile(took, 0.5), "call_idle_p99_ms": percentile(took, 0.99)}


def decode(wire: Wire, load: Load) -> Figures:
    """Short prompts of one length, greedy, all at once: tokens/s of the best round, median time to the first token."""
    rows: Figures = {}
    for requests, rounds in load.decode:
        rates, first = [], []
        for round_ in range(rounds):
            wire.forget()
            names = [f"d{requests}-{round_}-{n}" for n in range(requests)]
            began = time.perf_counter()
            for n, name in enumerate(names):
                wire.add(name, prompt_of(load, n + 100 + round_, *PROMPT), load.decode_tokens)
            rates.append(requests * load.decode_tokens / (wire.wait_all() - began))
            first += [(wire.first_at[name] - began) * 1e3 for name in names]
        rows[f"decode_tok_s_{requests}"] = max(rates)
        rows[f"ttft_ms_{requests}"] = median(first)
    return rows


def mixed(wire: Wire, load: Load) -> Figures:
    """Numbers nobody tunes for, prompts of 5 to 204 tokens, outputs of many lengths, every second request sampled."""
    rows: Figures = {}
    for requests in load.mixed:
        tokens = 0
        began = time.perf_counter()
        for n in range(requests):
            wanted = load.mixed_tokens + n % 40
            prompt = [(n * 13 + place * 7) % IDS + FIRST_ID for place in range(5 + n * 37 % 200)]
            wire.add(f"m{requests}-{n}", prompt_of(load, *prompt), wanted,
                     **({"temperature": 0.9, "top_p": 0.95} if n % 2 else {}))  # fmt: skip
            tokens += wanted
        rows[f"mixed_tok_s_{requests}"] = tokens / (wire.wait_all() - began)
    return rows


def prefill(wire: Wire, load: Load) -> Figures:
    """One long prompt, a new one each time; then the last one again."""

    def once(name: str, number: int) -> float:
        prompt = [(place * 7 + number * 131) % IDS + FIRST_ID for place in range(load.prompt_tokens)]
        began = time.perf_counter()
        wire.add(name, prompt_of(load, *prompt), 1)
        return wire.wait_all() - began

    took = [once(f"p{number}", number) for number in range(load.prompts)]
    return {
        "prefill_tok_s": load.prompt_tokens / min(took),
        "prefill_again_ms": once("again", load.prompts - 1) * 1e3,
    }


def steps(wire: Wire, load: Load) -> Figures:
    """Many long requests: the gaps between their messages, and a read-only call every so often meanwhile."""
    names = [f"s{n}" for n in range(load.running)]
    for n, name in enumerate(names):
        wire.add(name, prompt_of(load, n + 900, *PROMPT), load.running_tokens)
    settled = time.perf_counter() + load.settle_s
    while time.perf_counter() < settled:
        wire.receive(LOOK_EVERY_S)
    wire.forget()
    asked = watch(wire, load)
    seen = list(wire.messages)
    while asked.keys() - wire.answered.keys():
        wire.receive(LOOK_EVERY_S)  # the slowest answers count too
    began = time.perf_counter()
    wire.abort(names)
    wire.call(READ_ONLY_CALL)
    free_ms = (time.perf_counter() - began) * 1e3
    calls = [(wire.answered.pop(number) - when) * 1e3 for number, when in asked.items()]
    return {
        **step_figures(seen),
        "call_busy_p50_ms": percentile(calls, 0.5),
        "call_busy_p99_ms": percentile(calls, 0.99),
        "calls_busy": len(calls),
        "abort_then_call_ms": free_ms,
    }


def watch(wire: Wire, load: Load) -> dict[int, float]:
    """Reads all the time and asks every so often; when each call went out, by its id."""
    least, most = load.watch_s
    began = next_call = time.perf_counter()
    asked: dict[int, float] = {}
    while (passed := (now := time.perf_counter()) - began) < most and wire.live:
        if passed > least and len(wire.messages) > load.watch_steps:
            break
        if now >= next_call:
            asked[wire.ask(READ_ONLY_CALL)] = now
            next_call = now + load.ask_every_s
        wire.receive(next_call - now)
    return asked


def step_figures(messages: Sequence[tuple[float, int]]) -> Figures:
    """Of (when, tokens) of each message with outputs. Raises RunFailed when there were too few."""
    gaps = [(later[0] - earlier[0]) * 1e3 for earlier, later in itertools.pairwise(messages)]
    if not gaps:
        raise RunFailed("not two steps were seen")
    p50, p99 = percentile(gaps, 0.5), percentile(gaps, 0.99)
    return {"step_p50_ms": p50, "step_p99_ms": p99, "step_max_ms": max(gaps), "step_p99_per_p50": p99 / p50,
            "steps": len(gaps), "rows_per_step": sum(tokens for _, tokens in messages) / len(messages)}  # fmt: skip


def small(wire: Wire, load: Load) -> Figures:
    """Nine-token prompts that ask for one token, all at once."""
    began = time.perf_counter()
    for n in range(load.small):
        wire.add(f"one-{n}", prompt_of(load, n % 200 + 100, *PROMPT), 1)
    return {"small_req_s": load.small / (wire.wait_all() - began)}


def beside_neighbour(wire: Wire, load: Load) -> Figures:
    """The decode rows once more; whoever calls this keeps a core busy meanwhile."""
    figures = decode(wire, replace(load, decode=load.beside_neighbour))
    return {f"{NEIGHBOUR}_{name}": value for name, value in figures.items()}


Group = Callable[[Wire, Load], Figures]
GROUPS: dict[str, Group] = {
    "first": first_requests, "calls": idle_calls, "decode": decode, "mixed": mixed, "prefill": prefill,
    "steps": steps, "small": small, NEIGHBOUR: beside_neighbour,
}  # fmt: skip
