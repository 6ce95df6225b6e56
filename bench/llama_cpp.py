"""One request at a time, weights of few bits: our engine over the wire beside llama.cpp on the GGUF file, in turn.

Ours is the whole engine process with `--quantization`, llama.cpp its bare step in one process without any server, from
the same tokens; the best of the rounds counts on both sides.
usage: python -m bench.llama_cpp MODEL_DIR FILE.gguf --peer-python VENV/bin/python [--modes int4,int8] [--rounds 3]
VENV has llama-cpp-python, compiled for this machine: pip install --no-binary llama-cpp-python llama-cpp-python"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from bench.arms import ours
from bench.facts import note, print_result
from bench.groups import PROMPT, Load
from bench.protocol import measure
from bench.signals import ended_by_signals
from bench.wire import ROOT, RunFailed

MODES = ("int4", "int8", "none")
TOKENS = 128
SCRIPT = ROOT / "bench" / "in_peer" / "bench_llama_cpp.py"
PEER = "llama.cpp"


def peer_round(python: str, file: str, threads: int, deadline_s: float) -> float:
    """tokens/s. Raises RunFailed."""
    command = [python, str(SCRIPT), file, str(threads), "1", str(TOKENS), "100", *map(str, PROMPT)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(f"{PEER}: {error}") from None
    if done.returncode != 0:
        raise RunFailed(f"{PEER}: {' '.join(done.stderr.strip().splitlines()[-1:])}")
    return float(json.loads(done.stdout.splitlines()[-1])[0])


def our_round(model: str, mode: str, log: Path, deadline_s: float, more: list[str]) -> float:
    """tokens/s. Raises RunFailed."""
    arm = ours(model, ["--quantization", mode, *more])
    load = Load(decode=((1, 1),), decode_tokens=TOKENS)
    found = measure(arm.command, arm.full_environment(os.environ), ["first", "decode"], log,
                    deadline_s=deadline_s, load=load)  # fmt: skip
    return float(str(found["decode_tok_s_1"]))


def compare(given: argparse.Namespace, directory: Path, more: list[str]) -> dict[str, object]:
    best: dict[str, float] = {}
    modes = given.modes.split(",")
    threads = given.threads or len(os.sched_getaffinity(0))
    for round_ in range(given.rounds):
        seen = {mode: our_round(given.model, mode, directory / f"{mode}.log", given.deadline, more) for mode in modes}
        seen[PEER] = peer_round(given.peer_python, given.gguf, threads, given.deadline)
        note(f"round {round_ + 1}: {seen}")
        best = {name: max(rate, best.get(name, 0.0)) for name, rate in seen.items()}
    return {"tok_s": best, "ratio": {mode: round(best[mode] / best[PEER], 2) for mode in modes}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("gguf", help="of the same model")
    parser.add_argument("--peer-python", required=True, help="the Python of a venv with llama-cpp-python in it")
    parser.add_argument("--modes", default="int4,int8", help=f"of {','.join(MODES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help=f"of {PEER}; all cores unless told otherwise")
    parser.add_argument("--deadline", type=float, default=300.0, help="seconds for one run")
    given = parser.parse_args()
    if unknown := set(given.modes.split(",")) - set(MODES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(MODES)}")
    try:
        with ended_by_signals(), tempfile.TemporaryDirectory(prefix="bench-llama-") as directory:
            result = compare(given, Path(directory), ["--kernels", "native"])
    except RunFailed as error:
        raise SystemExit(str(error)) from None
    print_result("llama_cpp", given, result)


if __name__ == "__main__":
    main()
