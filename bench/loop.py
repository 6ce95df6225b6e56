"""The engine's own loop, with an executor that runs no model: tokens/s and steps/s at 1, 64 and 256 running requests.

What is left is scheduler, loop, IO threads and codec. With --peer-python the peer's engine core does the same with an
equally empty executor, both driven by one neutral frontend, in turn, in one sitting. Best of the rounds.
usage: python -m bench.loop MODEL_DIR [--rounds 3] [--peer-python VENV/bin/python]"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.arms import PEER_ENVIRONMENT, Arm, ours, peer_command, shape_of
from bench.facts import note, print_result
from bench.signals import ended_by_signals
from bench.table import OURS
from bench.wire import ROOT, RunFailed, Wire

SIZES = ((1, 1500), (64, 500), (256, 300))
"""Requests at once, tokens of each."""
SHAPE = shape_of(requests=256)
EXECUTOR = "bench_null_executor.NullExecutor"
PEER = "peer"


def null_arms(model: str, peer_python: str | None) -> list[Arm]:
    blocks = ["--executor", "null", "--num-gpu-blocks", str(256 * 32)]
    arms = [ours(model, blocks, SHAPE)]
    if peer_python is not None:
        command = [*peer_command(peer_python, model, SHAPE), "--distributed-executor-backend", EXECUTOR]
        arms.append(Arm(PEER, PEER, tuple(command), PEER_ENVIRONMENT | {"PYTHONPATH": str(ROOT / "bench" / "in_peer")}))
    return arms


def one_round(wire: Wire, requests: int, tokens: int, round_: int) -> dict[str, float]:
    wire.forget()
    began, cpu = time.perf_counter(), time.process_time()
    for n in range(requests):
        wire.add(f"q{requests}-{round_}-{n}", [n + 5, round_ + 9, 7, 8, 9, 10, 11, 12], tokens)
    took = wire.wait_all() - began
    received = sum(count for _, count in wire.messages)
    if received != requests * tokens:
        raise RunFailed(f"{received} tokens came, {requests * tokens} were asked for")
    return {"tok_s": round(received / took), "steps_s": round(len(wire.messages) / took),
            "frontend_cores": round((time.process_time() - cpu) / took, 2)}  # fmt: skip


Found = dict[str, dict[str, dict[str, float]]]


def measure(arms: Sequence[Arm], rounds: int, sizes: Sequence[tuple[int, int]], directory: Path, deadline_s: float,
            environment: Mapping[str, str]) -> Found:  # fmt: skip
    """By arm, by number of requests. All engines are there the whole time; an idle one takes no CPU."""
    found: Found = {arm.name: {} for arm in arms}
    with contextlib.ExitStack() as stack:
        wires = {}
        for arm in arms:
            log = directory / f"{arm.name}.log"
            wire = stack.enter_context(Wire(arm.command, arm.full_environment(environment), log, deadline_s))
            _, ready_s = wire.start()
            wires[arm.name] = wire
            note(f"{arm.title}: ready after {ready_s:.1f} s")
        for requests, tokens in sizes:
            for round_ in range(rounds):
                for name, wire in wires.items():
                    seen = one_round(wire, requests, tokens, round_)
                    best = found[name].setdefault(str(requests), seen)
                    found[name][str(requests)] = max(best, seen, key=lambda figures: figures["tok_s"])
                    note(f"{requests} requests, round {round_}: {name} {seen}")
    return found


def as_result(found: Found) -> dict[str, object]:
    """Ours stand alone, as they do without a peer, so that older results compare."""
    result: dict[str, object] = dict(found[OURS])
    if PEER in found:
        result[PEER] = found[PEER]
        result["ratio"] = {
            size: round(figures["tok_s"] / found[PEER][size]["tok_s"], 2) for size, figures in found[OURS].items()
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="its weights are not read")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer-python", help="the Python of a venv with vLLM in it")
    parser.add_argument("--deadline", type=float, default=900.0, help="seconds for the whole run")
    given = parser.parse_args()
    model = str(Path(given.model).absolute())
    with ended_by_signals(), tempfile.TemporaryDirectory(prefix="bench-loop-") as directory:
        try:
            found = measure(null_arms(model, given.peer_python), given.rounds, SIZES, Path(directory), given.deadline,
                            os.environ)  # fmt: skip
        except RunFailed as error:
            for log in Path(directory).glob("*.log"):
                note(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
            raise SystemExit(str(error)) from None
    print_result("loop", given, as_result(found))


if __name__ == "__main__":
    main()
