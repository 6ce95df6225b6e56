"""What the supervisor in between costs: round trips and tokens/s of a bare frontend, with and without it, in turn.

Both engines live all the time; rounds are short and take turns, and a ratio is that of two neighbours, so that whatever
slows the machine for a while slows both.

usage: python -m bench.relay MODEL_DIR [--requests 16] [--tokens 50] [--calls 200] [--rounds 9] [--threads N]"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.facts import note, print_result
from tests.support.frontend import RawFrontend

START_S = 300.0


def engine_args(given: argparse.Namespace) -> dict[str, object]:
    blocks = (given.tokens // 16 + 2) * given.requests
    return {"model": given.model, "max_num_seqs": given.requests, "num_gpu_blocks": blocks, "threads": given.threads,
            "dtype": given.dtype, "max_model_len": given.tokens + 64}  # fmt: skip


@contextlib.contextmanager
def direct(given: argparse.Namespace) -> Iterator[RawFrontend]:
    """The engine joins the frontend itself."""
    with RawFrontend() as frontend:
        command = [sys.executable, "-m", "engine", "--handshake", frontend.handshake_address]
        for key, value in engine_args(given).items():
            command += [] if value is None else ["--" + key.replace("_", "-"), str(value)]
        # In a session of its own, as the supervisor starts one: a scheduler may share out by sessions.
        engine = subprocess.Popen(command, start_new_session=True)
        try:
            frontend.wait_ready(START_S)
            yield frontend
        finally:
            engine.send_signal(signal.SIGTERM)
            engine.wait(30)


@contextlib.contextmanager
def relayed(given: argparse.Namespace) -> Iterator[RawFrontend]:
    """The supervisor joins it, and the engine the supervisor."""
    from enginectl.client import connect
    from enginectl.launch import launch_supervisor
    from enginectl.rundir import EngineEntry, save_settings
    from enginectl.settings import EngineSettings

    with RawFrontend() as frontend, tempfile.TemporaryDirectory(prefix="relay-") as base:
        os.environ["ENGINECTL_STATE_DIR"] = str(Path(base) / "state")
        os.environ["ENGINECTL_RUNTIME_DIR"] = str(Path(base) / "run")
        config = {key: value for key, value in engine_args(given).items() if value is not None}
        save_settings(EngineSettings(name="b", config=config, join=frontend.handshake_address))  # type: ignore[arg-type]
        launch_supervisor("b")
        with connect("b") as engine:
            frontend.wait_ready(START_S)
            yield frontend
            engine.stop(grace_s=0.0)
        EngineEntry.read("b").wait_gone(10.0)


def round_trip_ms(frontend: RawFrontend, calls: int) -> float:
    """Median of one utility call, answered by the engine's input thread at once."""
    found = []
    for _ in range(calls):
        began = time.perf_counter()
        frontend.call("stats")
        found.append((time.perf_counter() - began) * 1000)
    return median(found)


def tokens_per_s(frontend: RawFrontend, given: argparse.Namespace, round_: int) -> float:
    began = time.perf_counter()
    names = [f"{round_}-{number}" for number in range(given.requests)]
    for number, name in enumerate(names):
        frontend.add(name, [10 + number, 20 + round_, 7, 8], max_tokens=given.tokens, ignore_eos=True)
    found = frontend.collect_all(names, START_S)
    return sum(len(one.token_ids) for one in found) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=50)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dtype", default="auto")
    given = parser.parse_args()
    trips: dict[str, list[float]] = {"direct": [], "relayed": []}
    rates: dict[str, list[float]] = {"direct": [], "relayed": []}
    with direct(given) as plain, relayed(given) as behind:
        sides = {"direct": plain, "relayed": behind}
        for frontend in sides.values():
            tokens_per_s(frontend, given, -1)
        for round_ in range(given.rounds):
            for name, frontend in sorted(sides.items(), reverse=bool(round_ % 2)):  # neither is always the first
                trips[name].append(round(round_trip_ms(frontend, given.calls), 4))
                rates[name].append(round(tokens_per_s(frontend, given, round_), 1))
                note(f"round {round_}: {name} {trips[name][-1]:.3f} ms a call, {rates[name][-1]:,.0f} tokens/s")
    added = [behind - plain for plain, behind in zip(trips["direct"], trips["relayed"], strict=True)]
    shares = [behind / plain for plain, behind in zip(rates["direct"], rates["relayed"], strict=True)]
    result: dict[str, object] = {
        "round_trip_ms": trips,
        "tok_s": rates,
        "added_ms_a_message": round(median(added) / 2, 4),
        "relayed_per_direct": round(median(shares), 4),
        "added_ms_a_message_rounds": [round(value / 2, 4) for value in added],
        "relayed_per_direct_rounds": [round(value, 4) for value in shares],
    }
    print_result("relay", given, result)


if __name__ == "__main__":
    main()
