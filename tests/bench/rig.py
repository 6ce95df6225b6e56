"""Small loads, and a venv whose `vllm serve` is this project's engine without a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.groups import Load

TINY = Load(
    first_requests=3, calls=5, decode=((1, 1), (8, 1), (32, 1)), decode_tokens=4, mixed=(3, 17, 50), mixed_tokens=2,
    prompt_tokens=100, prompts=2, running=4, settle_s=0.0, watch_steps=3, watch_s=(0.0, 5.0), ask_every_s=0.005,
    small=8, beside_neighbour=((1, 1), (8, 1), (32, 1)), vocabulary=320,
)  # fmt: skip
PEER = """#!/bin/sh
if [ "$1" = -c ]; then echo 0.0.1 2.0 3.11; exit; fi
echo "$LD_PRELOAD $VLLM_CPU_OMP_THREADS_BIND" >> {started}
[ -e {broken} ] && exit 3
unset LD_PRELOAD
model=$4
while [ "$1" != --data-parallel-rpc-port ]; do shift; done
exec {python} -m engine --handshake tcp://127.0.0.1:$2 --model $model --executor null
"""


class Venv:
    """`started` has one line for each engine that was started; `broken`: they end at once."""

    def __init__(self, directory: Path) -> None:
        self.started, self.broken = directory / "started", directory / "broken"
        (directory / "venv" / "bin").mkdir(parents=True)
        (directory / "venv" / "lib").mkdir()
        self.library = directory / "venv" / "lib" / "libiomp5.so"
        self.library.touch()
        self.python = directory / "venv" / "bin" / "python"
        self.python.write_text(PEER.format(started=self.started, broken=self.broken, python=sys.executable))
        self.python.chmod(0o755)

    def starts(self) -> list[str]:
        return self.started.read_text().splitlines() if self.started.exists() else []


def asked(directory: Path, model: Path, venv: Venv, **changed: object) -> argparse.Namespace:
    """What the command line would give."""
    given = {"model": str(model), "peer_python": str(venv.python), "rounds": 1, "only": "first,calls,neighbour",
             "peer_dtype": "bfloat16", "deadline": 60.0,
             "out": directory / "out", "results": directory / "RESULTS.md"}  # fmt: skip
    return argparse.Namespace(**{**given, **changed})
