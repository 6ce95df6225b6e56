"""Our engine beside vLLM's on one machine in one sitting: the figures of bench/RESULTS.md.

Three arms in turn, round by round: ours, vLLM as it comes, vLLM in its best setting (all cores, Intel's OpenMP). Each
run is a new engine, driven by the same neutral frontend (bench.protocol), and is kept in --out: a sitting that was
interrupted goes on where it was. A whole sitting takes long; leave the machine alone meanwhile.
usage: python -m bench.peers MODEL_DIR --peer-python VENV/bin/python [--rounds 3] [--only decode,neighbour,...]"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from bench import arms as known_arms
from bench.arms import Arm, NoSuchPeer
from bench.facts import document, note
from bench.groups import GROUPS, Load
from bench.protocol import chosen
from bench.report import report
from bench.runs import Document, OtherSitting, by_arm, execute_all, plan
from bench.signals import ended_by_signals
from bench.table import OURS, Line, lines
from bench.wire import ROOT, RunFailed, Wire

FULL_ROUNDS = 3
WARM_S = 300.0


class NoKernels(Exception):
    """Ours would run on its fallback."""


def versions(peer_python: str) -> dict[str, str]:
    """Of both sides; the peer is asked for its metadata, not imported."""
    code = (
        "from importlib.metadata import version; import platform;"
        "print(version('vllm'), version('torch'), platform.python_version())"
    )
    asked = subprocess.run([peer_python, "-c", code], capture_output=True, text=True, timeout=60)
    if asked.returncode != 0:
        raise NoSuchPeer(f"{peer_python}: {asked.stderr.strip().splitlines()[-1:]}")
    vllm, torch, python = asked.stdout.split()
    return {"enginectl": version("enginectl"), "revision": revision(), "torch": version("torch"),
            "vllm": vllm, "vllm_torch": torch, "vllm_python": python}  # fmt: skip


def revision() -> str:
    """Of this clone; `+` when files differ from it; empty where there is no git."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip()


def warm(arm: Arm, directory: Path) -> None:
    """Ours compiles its kernels once per machine, in the background: done before, not beside, what is measured.

    Raises NoKernels, for a long sitting without them would be for nothing; who wants it says so in --ours-args."""
    asked = [] if "--kernels" in arm.command else ["--kernels", "native"]
    log = directory / "warm.log"
    try:
        with Wire([*arm.command, *asked], arm.full_environment(os.environ), log, WARM_S) as wire:
            note(f"warm: ready after {wire.start()[1]:.1f} s")
    except RunFailed:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        without = "to measure without them: --ours-args='--kernels eager'"
        raise NoKernels(f"no compiled kernels: {' '.join(last)}\n  {without}") from None


def write(directory: Path, results: Path, facts: str, text: str, whole: str | None) -> None:
    """To `directory` always; to `results` when nothing is missing (whole is None), so that no half table is kept."""
    for place in [directory / "RESULTS.md"] + ([] if whole else [results]):
        place.write_text(text)
        place.with_suffix(".json").write_text(facts + "\n")
        note(f"written: {place} and {place.with_suffix('.json').name}")
    if whole:
        note(f"{results} is left as it is: {whole}")


def missing(found: Sequence[Line], runs: Sequence[Document], wanted: int, rounds: int) -> str | None:
    """Why this is no whole table; None when it is one."""
    absent = [line.row.title for line in found if not line.is_complete]
    if absent:
        return f"no figures of {absent[0]}" + (f" and {len(absent) - 1} more" if absent[1:] else "")
    if len(runs) < wanted:
        return f"{wanted - len(runs)} of {wanted} runs failed"
    return None if rounds >= FULL_ROUNDS else f"{rounds} of at least {FULL_ROUNDS} rounds"


def as_json(line: Line) -> dict[str, object]:
    values = {"ours": line.ours, "ratio": line.ratio, **{f"peer_{n}": value for n, value in enumerate(line.peers)}}
    return {"row": line.row.title, "target": line.row.target, "holds": line.holds,
            **{name: None if math.isnan(value) else value for name, value in values.items()}}  # fmt: skip


def without_paths(text: str, paths: Mapping[str, str]) -> str:
    """Words in place of what is this machine's alone; a path inside another is replaced after it."""
    for path in sorted(paths, key=len, reverse=True):
        text = text.replace(path, paths[path])
    return text


def compare(given: argparse.Namespace, arms: Sequence[Arm], load: Load | None = None) -> bool:
    """True when every run gave its figures."""
    directory: Path = given.out
    directory.mkdir(parents=True, exist_ok=True)
    runs = plan(arms, given.rounds, chosen(given.only, list(GROUPS)))
    made = versions(given.peer_python)
    documents = list(execute_all(runs, directory, given.deadline, load))
    figures = by_arm(documents, lambda run: run["result"])
    found = lines(figures, [arm.name for arm in arms if arm.name != OURS])
    facts = document("peers", given, {"versions": made, "table": [as_json(line) for line in found],
                                      "medians": figures, "runs": documents})  # fmt: skip
    paths = {given.model: "MODEL_DIR", str(Path(given.peer_python).parent.parent): "VENV", sys.prefix: "OUR_VENV",
             str(given.out): "OUT", str(given.results): "RESULTS", str(ROOT): "."}  # fmt: skip
    text = without_paths(json.dumps(facts, indent=1), paths)
    write(directory, given.results, text, without_paths(report(facts, found, documents, arms), paths),
          missing(found, documents, len(runs), given.rounds))  # fmt: skip
    print(text)
    return len(documents) == len(runs)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--peer-python", required=True, help="the Python of a venv with vLLM in it")
    parser.add_argument("--rounds", type=int, default=FULL_ROUNDS)
    parser.add_argument("--only", help=f"of {','.join(GROUPS)}")
    parser.add_argument("--arms", help="of ours,vllm-default,vllm-best")
    parser.add_argument("--deadline", type=float, default=1800.0, help="seconds for one run")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "out" / "peers", help="where runs are kept")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "RESULTS.md")
    parser.add_argument("--peer-dtype", choices=("bfloat16", "float32"), default=known_arms.DTYPE,
                        help="float32 is faster for it where the CPU has no bfloat16 instructions")  # fmt: skip
    parser.add_argument("--ours-args", default="", help="more words for `python -m engine`, in one string")
    parser.add_argument("--peer-args", default="", help="more words for `vllm serve`, in one string")
    given = parser.parse_args()
    given.model = str(Path(given.model).absolute())
    return given


def main() -> None:
    given = arguments()
    more, shape = shlex.split(given.peer_args), known_arms.shape_of(given.peer_dtype)
    try:
        arms = [known_arms.ours(given.model, shlex.split(given.ours_args)),
                known_arms.peer_default(given.peer_python, given.model, more, shape),
                known_arms.peer_best(given.peer_python, given.model, more, shape)]  # fmt: skip
        names = chosen(given.arms, [arm.name for arm in arms])
        with ended_by_signals(), tempfile.TemporaryDirectory(prefix="bench-peers-") as scratch:
            if OURS in names:
                warm(arms[0], Path(scratch))
            whole = compare(given, [arm for arm in arms if arm.name in names])
    except (NoSuchPeer, NoKernels, OtherSitting) as error:
        raise SystemExit(str(error)) from None
    if not whole:
        raise SystemExit("some runs failed: say the same again to repeat just these")


if __name__ == "__main__":
    main()
