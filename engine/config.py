"""The settings of one engine, the same names on `python -m engine`, `enginectl start --set` and in enginectl.toml.

Knows nothing of torch: the tool reads and checks settings without it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from engine.errors import ConfigError

DTYPES = ("auto", "float32", "bfloat16", "float16")
EXECUTORS = ("uniproc", "null")
KERNELS = ("auto", "native", "eager")
QUANTIZATIONS = ("none", "int8", "int4")
DIALECTS = ("auto", "0.25", "0.32")
_SIZE = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(b|kb|mb|gb|tb|k|m|g|t|kib|mib|gib|tib)?\s*$", re.IGNORECASE)
_SCALE = {
    "": 1,
    "b": 1,
    "k": 1024,
    "m": 1024**2,
    "g": 1024**3,
    "t": 1024**4,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
    "tib": 1024**4,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
}


def parse_size(text: str | int) -> int:
    """Bytes of `1GiB`, `512m`, `1000000`. Powers of 1024, except kB, MB, GB, TB. Raises ConfigError."""
    if isinstance(text, int):
        return text
    match = _SIZE.match(text)
    if match is None:
        raise ConfigError(f"not a size: {text!r} (write it as 512MiB, 1GiB or a number of bytes)")
    return int(float(match.group(1)) * _SCALE[(match.group(2) or "").lower()])


class EngineConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked for. The effective values (max_model_len, num_gpu_blocks, dtype) are in the ready response."""

    model: str
    """A directory with config.json, *.safetensors and tokenizer.json."""
    dtype: str = "auto"
    max_model_len: int | None = None
    """Tokens a request may hold, prompt and output. None: what the model says; cut to fit the KV cache."""
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    kv_memory: int | None = None
    """Bytes for the KV cache. None: a share of the free memory, measured after the weights are loaded."""
    num_gpu_blocks: int | None = None
    """Overrides kv_memory: exactly so many blocks."""
    enable_prefix_caching: bool = True
    executor: str = "uniproc"
    """uniproc, null, or module:Class for an Executor of your own."""
    device: str = "auto"
    kernels: str = "auto"
    """auto: compiled steps as soon as they are built, torch until then; native: wait for them; eager: torch alone."""
    quantization: str = "none"
    """int8 or int4: weights are rounded to that many bits at load, for speed and memory; results change a little."""
    threads: int | None = None
    seed: int = 0
    shutdown_timeout_s: float = 0.0
    """What SIGTERM does: 0 aborts what runs, more drains for so long and then aborts."""
    orphan_grace_s: float = 5.0
    client_byte_budget: int = 256 * 1024**2
    """Bytes of outputs a client may leave unread before its requests are aborted."""
    dialect: str = "auto"
    """The layout of outputs. auto: what each client shows of itself."""
    allow_unsafe_calls: bool = False
    """Permits utilities that write files (profile)."""
    log_level: str = "info"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype {self.dtype!r} is not known; one of {', '.join(DTYPES)}")
        if self.executor not in EXECUTORS and ":" not in self.executor:
            raise ConfigError(f"executor {self.executor!r} is not known; one of {', '.join(EXECUTORS)} or module:Class")
        if self.kernels not in KERNELS:
            raise ConfigError(f"kernels {self.kernels!r} is not known; one of {', '.join(KERNELS)}")
        if self.dialect not in DIALECTS:
            raise ConfigError(f"dialect {self.dialect!r} is not known; one of {', '.join(DIALECTS)}")
        if self.quantization not in QUANTIZATIONS:
            raise ConfigError(f"quantization {self.quantization!r} is not known; one of {', '.join(QUANTIZATIONS)}")
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("max_model_len", "num_gpu_blocks", "threads", "kv_memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")


FIELDS: dict[str, Any] = {f.name: f for f in msgspec.structs.fields(EngineConfig)}
_SIZES = frozenset({"kv_memory", "client_byte_budget"})


def parse_setting(key: str, text: str) -> object:
    """The typed value of `--set key=text`. Raises ConfigError, with the nearest name when the key is unknown."""
    name = key.replace("-", "_")
    if name not in FIELDS:
        raise ConfigError(unknown_setting(key))
    if name in _SIZES:
        return parse_size(text)
    try:
        return msgspec.convert(text, FIELDS[name].type, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{key}={text!r}: {error}") from None


def unknown_setting(key: str) -> str:
    import difflib

    near = difflib.get_close_matches(key.replace("-", "_"), FIELDS, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(FIELDS))}"
    return f"unknown setting {key!r}{hint}"
