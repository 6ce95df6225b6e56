"""What runs beside what: our engine, and the peer in its default and in its best setting. Pure.

Each has the shape that is compared: bfloat16 weights, 2,048 tokens, 64 requests, 1 GiB of KV cache. The peer may be
given float32, where the CPU has no bfloat16 instructions and it is slow without them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.table import OURS

DEFAULT, BEST = "vllm-default", "vllm-best"
DTYPE = "bfloat16"


def shape_of(dtype: str = DTYPE, requests: int = 64) -> list[str]:
    return ["--dtype", dtype, "--max-model-len", "2048", "--max-num-seqs", str(requests)]


SHAPE = shape_of()
PEER_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
DROPPED = ("OMP_", "GOMP_", "KMP_", "MKL_NUM_", "VLLM_", "LD_PRELOAD", "PYTHONPATH")
"""What a shell may hold that would decide over threads and settings: no arm inherits it."""


class NoSuchPeer(Exception):
    """The venv is not what it should be."""


@dataclass(frozen=True)
class Arm:
    name: str
    title: str
    command: tuple[str, ...]
    """{port} stands for the port of the handshake."""
    environment: dict[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    """What a start reads, as files or whole folders."""

    def full_environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in inherited.items() if not name.startswith(DROPPED)}
        return kept | self.environment

    def in_words(self) -> str:
        """As one would type it."""
        return " ".join([*(f"{name}={value}" for name, value in self.environment.items()), *self.command])


def ours(model: str, more: Sequence[str] = (), shape: Sequence[str] = SHAPE) -> Arm:
    command = [sys.executable, "-m", "engine", "--handshake", "tcp://127.0.0.1:{port}", "--model", model, *shape,
               "--kv-memory", "1GiB", *more]  # fmt: skip
    return Arm(OURS, OURS, tuple(command), files=start_files(sys.executable, model))


def start_files(python: str, model: str) -> tuple[Path, ...]:
    """The libraries of an environment, and the model."""
    return Path(python).parent.parent / "lib", Path(model)


def peer_command(python: str, model: str, shape: Sequence[str] = SHAPE) -> list[str]:
    """The peer's engine without its API server: it joins whoever listens on the port."""
    return [python, "-m", "vllm.entrypoints.cli.main", "serve", model, "--headless", "--data-parallel-size", "1",
            "--data-parallel-size-local", "1", "--data-parallel-address", "127.0.0.1",
            "--data-parallel-rpc-port", "{port}", *shape]  # fmt: skip


def peer_default(python: str, model: str, more: Sequence[str] = (), shape: Sequence[str] = SHAPE) -> Arm:
    command = (*peer_command(python, model, shape), *more)
    return Arm(DEFAULT, "vLLM, default", command, dict(PEER_ENVIRONMENT), start_files(python, model))


def peer_best(
    python: str,
    model: str,
    more: Sequence[str] = (),
    shape: Sequence[str] = SHAPE,
    cores: Sequence[int] | None = None,
) -> Arm:
    """All cores, which it does not take by itself, and Intel's OpenMP. Raises NoSuchPeer where that is missing."""
    library = Path(python).parent.parent / "lib" / "libiomp5.so"
    if not library.exists():
        raise NoSuchPeer(f"{library} is missing: {python} -m pip install intel-openmp")
    bound = core_list(sorted(os.sched_getaffinity(0)) if cores is None else cores)
    environment = PEER_ENVIRONMENT | {"LD_PRELOAD": str(library), "VLLM_CPU_OMP_THREADS_BIND": bound}
    command = (*peer_command(python, model, shape), *more)
    return Arm(BEST, "vLLM, best", command, environment, start_files(python, model))


def core_list(cores: Sequence[int]) -> str:
    """0-3 for a whole range, else 0,2,5."""
    whole = len(cores) > 1 and list(cores) == list(range(cores[0], cores[-1] + 1))
    return f"{cores[0]}-{cores[-1]}" if whole else ",".join(map(str, cores))
