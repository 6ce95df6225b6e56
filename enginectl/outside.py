"""What a start says of the world outside: whose frontend, what kind of engine, whether clients are held.

Options and recorded settings come in, fields of EngineSettings leave. What is not said is as the last time."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Literal, TypedDict

from msgspec import Struct

from enginectl.errors import UsageError
from enginectl.settings import EngineSettings
from enginectl.split import is_serve_command, split_command
from enginectl.units import parse_duration

KINDS = ("enginectl", "vllm")
VLLM_SETTINGS = frozenset(
    {"model", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "num_gpu_blocks", "dtype",
     "seed", "enable_prefix_caching", "dialect"}
)  # fmt: skip
"""Settings of ours that a vLLM engine has too."""


class OutsideOptions(TypedDict, total=False):
    """Options of `start` as they were typed."""

    engine: str | None
    join: str | None
    allow_remote: bool | None
    hold: bool | None
    hold_limit: str | None
    hold_sampled: str | None
    rest: list[str] | None


class Outside(Struct, kw_only=True):
    """As in EngineSettings. `typed`: which fields were."""

    engine: Literal["enginectl", "vllm"] = "enginectl"
    join: str = ""
    allow_remote: bool = False
    hold: bool = False
    hold_limit_s: float = 120.0
    hold_sampled: Literal["resume", "fail"] = "resume"
    engine_args: list[str] = []
    frontend_args: list[str] | None = None
    http_port: int | None = None
    model: str = ""
    """From a command that was split."""
    python: str = ""
    """The interpreter to use where none was named."""
    typed: frozenset[str] = frozenset()

    def apply(self, settings: EngineSettings) -> EngineSettings:
        for name in _RECORDED:
            setattr(settings, name, getattr(self, name))
        if self.engine == "vllm":
            unknown = sorted(key for key in settings.config if key not in VLLM_SETTINGS)
            if unknown:
                raise UsageError(
                    f"vLLM has no setting {unknown[0]!r}",
                    try_=["put vLLM's own arguments behind --, as -- --dtype float32"],
                )
        return settings


def outside_of(
    recorded: EngineSettings | None,
    *,
    engine: str | None = None,
    join: str | None = None,
    allow_remote: bool | None = None,
    hold: bool | None = None,
    hold_limit: str | None = None,
    hold_sampled: str | None = None,
    rest: list[str] | None = None,
) -> Outside:
    """`recorded`: the last start, or None when nothing is taken over. Raises UsageError."""
    given: dict[str, object] = {}
    if engine is not None:
        given["engine"] = _one_of("--engine", engine, KINDS)
    if join is not None:
        given |= {"join": join, "allow_remote": bool(allow_remote)}
    if allow_remote is not None:
        given["allow_remote"] = allow_remote
    if hold is not None:
        given["hold"] = hold
    if hold_limit is not None:
        given["hold_limit_s"] = parse_duration(hold_limit)
    if hold_sampled is not None:
        given["hold_sampled"] = _one_of("--hold-sampled", hold_sampled, ("resume", "fail"))
    given |= _behind_dashes(rest, engine, join)
    kept = {} if recorded is None else {name: getattr(recorded, name) for name in _RECORDED}
    if "engine" in given and recorded is not None and given["engine"] != recorded.engine:
        kept = {name: kept[name] for name in ("hold", "hold_limit_s", "hold_sampled")}
    outside = Outside(**{**kept, **given}, typed=frozenset(given))  # type: ignore[arg-type]
    if outside.engine == "vllm" and not outside.python:
        outside.python = python_of("vllm")
    return outside


_RECORDED = ("engine", "join", "allow_remote", "hold", "hold_limit_s", "hold_sampled", "engine_args", "frontend_args",
             "http_port")  # fmt: skip


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    if value in known:
        return value
    hint = "an engine's name stands alone: enginectl start NAME" if option == "--engine" else ""
    raise UsageError(f"{option} {value!r}: one of {', '.join(known)}", cause=hint)


def _behind_dashes(rest: list[str] | None, engine: str | None, join: str | None) -> dict[str, object]:
    """Arguments of a foreign engine, or a whole command to be split."""
    if not rest:
        return {}
    if is_serve_command(rest):
        if engine == "enginectl" or join:
            raise UsageError("a whole command behind -- brings its own frontend", cause="leave --join and --engine out")
        split = split_command(rest)
        return {"engine": "vllm", "engine_args": split.engine_args, "frontend_args": split.frontend_args, "join": "",
                "http_port": split.http_port, "model": split.model, "python": python_of(split.program)}  # fmt: skip
    if engine == "vllm":
        return {"engine_args": list(rest)}
    raise UsageError(
        f"what stands behind -- is neither a command nor for a vLLM engine: {rest[0]!r}",
        try_=["-- vllm serve MODEL ...", "--engine vllm --model MODEL -- VLLM ARGS"],
    )


def python_of(program: str) -> str:
    """The interpreter that a `vllm` script belongs to; ours when there is none."""
    path = shutil.which(program)
    if path is not None:
        beside = os.path.join(os.path.dirname(os.path.abspath(path)), "python")
        if os.access(beside, os.X_OK):
            return beside
    return sys.executable
