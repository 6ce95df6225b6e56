"""What this machine can compute in: device, storage type and compute type, chosen once and reported.

Enters: what was asked for. Leaves: a Target. Raises ModelError for what cannot run here."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

from engine.errors import ModelError
from engine.model.loader import Target

_TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_NATIVE_BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def choose_target(dtype: str, saved_dtype: str, device: str) -> Target:
    """`dtype` auto: what the weights were saved in. On a CPU without instructions for a 16-bit type the weights are
    rounded to it and computed with in float32, several times as fast as emulating them."""
    name = saved_dtype if dtype == "auto" else dtype
    if name not in _TYPES:
        raise ModelError(f"dtype {name!r} cannot be used; one of auto, {', '.join(_TYPES)}")
    where = _device(device)
    storage = _TYPES[name]
    native = where.type != "cpu" or storage == torch.float32 or (storage == torch.bfloat16 and cpu_has_bf16())
    return Target(storage, storage if native else torch.float32, where)


def type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def cpu_has_bf16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the CPU multiplies bfloat16 matrices itself."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return not _NATIVE_BF16_FLAGS.isdisjoint(flags.split())


def available_cores(cpu_max: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores this process may run on, or fewer where a container's quota is nearer; at least 1."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = cpu_max.read_text().split()
        return cores if quota == "max" else max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):
        return cores


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ModelError(f"device {name!r} is not known; use auto, cpu or cuda") from None
    if device.type not in ("cpu", "cuda"):
        raise ModelError(f"device {name!r} is not supported; use auto, cpu or cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"device {name!r} was asked for, but torch finds no CUDA here; use --device cpu")
    return device
