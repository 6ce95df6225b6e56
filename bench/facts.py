"""What every benchmark here shares: facts of the machine, percentiles, one JSON document on stdout.

Figures mean something only beside others of the same machine and sitting, so no benchmark asserts a time."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

ISA = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0..1) of the values lie; nan of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def summary_ms(values_ms: Sequence[float]) -> dict[str, float | int]:
    """p50, p95 and p99, ms."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return {"n": len(values_ms), **{name: round(percentile(values_ms, share), 3) for name, share in shares.items()}}


def machine() -> dict[str, str | int | float | list[str]]:
    """Enough to tell two machines apart, and how busy this one is at the moment."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load_1min": round(os.getloadavg()[0], 2),
        "isa": _isa(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1024**3),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def _isa() -> list[str]:
    """What a matmul could use."""
    with open("/proc/cpuinfo") as lines:
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return [name for name in ISA if name in flags]


def _cpu_model() -> str:
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def document(bench: str, settings: argparse.Namespace, result: dict[str, object]) -> dict[str, Any]:
    """What a benchmark leaves: itself, the machine, the settings, the figures."""
    return {
        "bench": bench,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "settings": {name: str(value) if isinstance(value, Path) else value for name, value in vars(settings).items()},
        "result": result,
    }


def print_result(bench: str, settings: argparse.Namespace, result: dict[str, object]) -> None:
    json.dump(document(bench, settings, result), sys.stdout, indent=1)
    print()


def note(text: str) -> None:
    """Progress, on stderr: stdout is the document."""
    print(text, file=sys.stderr, flush=True)
