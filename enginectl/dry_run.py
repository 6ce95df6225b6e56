"""`start --dry-run`: the settings with their origins, and the arithmetic of memory from config.json and file sizes.

Reads small files and /proc/meminfo; starts nothing, loads no weights, imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from enginectl import text
from enginectl.asking import Asked, make_settings
from enginectl.config import OPTIONS, default_of
from enginectl.models import ModelUnusable
from enginectl.output import Output

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class Memory(NamedTuple):
    weight_bytes: int
    kv_bytes_per_token: int
    kv_budget_bytes: int | None
    """None: measured by the engine after the weights are loaded."""
    available_bytes: int | None
    max_model_len: int
    block_size: int
    dtype: str

    @property
    def full_request_bytes(self) -> int:
        blocks = -(-self.max_model_len // self.block_size)
        return blocks * self.block_size * self.kv_bytes_per_token

    @property
    def budget_or_guess_bytes(self) -> int | None:
        """What there would be for the KV cache: as asked, else what is free beyond the weights."""
        if self.kv_budget_bytes is not None:
            return self.kv_budget_bytes
        return None if self.available_bytes is None else max(0, self.available_bytes - self.weight_bytes)


def plan_memory(path: Path, values: dict[str, object]) -> Memory:
    """From a model directory and resolved settings. Raises ModelUnusable for a config.json that says too little."""
    config = _read(path / "config.json")
    heads = _number(config, "num_attention_heads", path)
    head_dim = int(config.get("head_dim") or _number(config, "hidden_size", path) // heads)
    kv_heads = int(config.get("num_key_value_heads") or heads)
    dtype = str(values.get("dtype") or "auto")
    if dtype == "auto":
        dtype = str(config.get("torch_dtype") or config.get("dtype") or "float32")
    item = ITEM_BYTES.get(dtype, 4)
    per_token = 2 * _number(config, "num_hidden_layers", path) * kv_heads * head_dim * item
    block_size = _setting(values, "block_size")
    blocks = values.get("num_gpu_blocks")
    budget = blocks * block_size * per_token if isinstance(blocks, int) else values.get("kv_memory")
    limit = int(config.get("max_position_embeddings") or 2048)
    asked = values.get("max_model_len")
    return Memory(
        weight_bytes=sum(file.stat().st_size for file in path.glob("*.safetensors")),
        kv_bytes_per_token=per_token,
        kv_budget_bytes=budget if isinstance(budget, int) else None,
        available_bytes=_available(),
        max_model_len=asked if isinstance(asked, int) else limit,
        block_size=block_size,
        dtype=dtype,
    )


def _setting(values: dict[str, object], key: str) -> int:
    value = values.get(key, default_of(key))
    return value if isinstance(value, int) else 0


def _read(file: Path) -> dict[str, int | str | None]:
    try:
        found = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelUnusable(f"{file} cannot be read", cause=str(error)) from None
    if not isinstance(found, dict):
        raise ModelUnusable(f"{file} is no JSON object")
    return {str(key): value for key, value in found.items() if isinstance(value, (int, str))}


def _number(config: dict[str, int | str | None], key: str, path: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or value < 1:
        raise ModelUnusable(f"{path / 'config.json'}: {key} is {value!r}, a number above 0 was expected")
    return value


def _available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def show_plan(asked: Asked, out: Output) -> None:
    """Prints it: text, or one Plan document."""
    settings = make_settings(asked, out)
    memory = plan_memory(Path(str(settings.config["model"])), dict(settings.config))
    origins = {key: value.origin for key, value in asked.layer.items()}
    out.document(
        "Plan",
        {
            "name": asked.name,
            "settings": settings.config,
            "origins": origins,
            "python": settings.python,
            "restart": settings.restart,
            "weight_bytes": memory.weight_bytes,
            "dtype": memory.dtype,
            "kv_bytes_per_token": memory.kv_bytes_per_token,
            "kv_budget_bytes": memory.kv_budget_bytes,
            "available_bytes": memory.available_bytes,
            "max_model_len": memory.max_model_len,
            "full_request_bytes": memory.full_request_bytes,
        },
    )
    shown = [
        (key, f"{settings.config.get(key, value.value)}   ({value.origin})")
        for key, value in sorted(asked.layer.items())
        if key not in OPTIONS or key != "timeout"
    ]
    out.text(
        f"{asked.name}  would start, nothing was started", *text.pairs(shown), "", *text.pairs(_arithmetic(memory))
    )


def _arithmetic(memory: Memory) -> list[tuple[str, str]]:
    rows = [
        ("weights", f"{text.size(memory.weight_bytes)} on disk"),
        (
            "kv cache",
            f"{memory.kv_bytes_per_token:,} bytes a token ({memory.dtype}); one request of "
            f"{memory.max_model_len:,} tokens needs {text.size(memory.full_request_bytes)}",
        ),
    ]
    if memory.available_bytes is not None:
        rows.append(("memory", f"{text.size(memory.available_bytes)} available on this host"))
    budget = memory.budget_or_guess_bytes
    if budget is not None:
        tokens = budget // memory.kv_bytes_per_token
        source = "as asked" if memory.kv_budget_bytes is not None else "at most; the engine measures"
        fits = "" if budget >= memory.full_request_bytes else "; max_model_len will be cut to that"
        rows.append(("budget", f"{text.size(budget)} ({source}) = {tokens:,} tokens{fits}"))
    return rows
