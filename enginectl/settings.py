"""What an engine is started with, as settings.json keeps it: the engine's own settings and the supervisor's options.

Written by the command that starts an engine, read by its supervisor at each start and restart."""

from __future__ import annotations

import os
import re
import sys
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from engine.config import EngineConfig
from engine.errors import ConfigError
from enginectl.addresses import check_join
from enginectl.dirs import check_name
from enginectl.errors import UsageError

Scalar: TypeAlias = str | int | float | bool | None
RESTART_PATTERN = re.compile(r"no|on-failure(:[1-9][0-9]*)?|always")
DEFAULT_RESTARTS = 5


class EngineSettings(Struct, kw_only=True):
    """One engine's settings. Unknown keys are ignored on reading, so that an older version can read a newer file."""

    name: str
    config: dict[str, Scalar] = {}
    """EngineConfig, only what was asked for; `model` is always there."""
    engine: Literal["enginectl", "vllm"] = "enginectl"
    """What kind of engine is spawned."""
    python: str = field(default_factory=lambda: sys.executable)
    """Interpreter that runs the engine."""
    engine_args: list[str] = []
    """Put behind the engine's own arguments as they are."""
    join: str = ""
    """Handshake address of an external frontend whose engine this is; empty: the supervisor alone is its client."""
    allow_remote: bool = False
    """That frontend may be on another machine."""
    frontend_args: list[str] | None = None
    """`vllm serve` behind these arguments is started as the frontend; None: there is none, or it is not ours."""
    http_port: int | None = None
    """Where that frontend serves."""
    hold: bool = False
    """Clients are held, not failed, while the engine is restarted after a failure."""
    hold_limit_s: float = 120.0
    """How long they are held at most."""
    hold_sampled: Literal["resume", "fail"] = "resume"
    """What happens to held requests that are sampled and have begun."""
    env: dict[str, str] = {}
    """Set in the engine's environment, over what the supervisor has."""
    gpus: list[int] | None = None
    """Becomes CUDA_VISIBLE_DEVICES; None leaves it alone."""
    restart: str = "no"
    """no, on-failure, on-failure:N (at most N restarts within 10 minutes; 5 when left out), always."""
    start_timeout_s: float = 600.0
    """From spawn to ready; past it the start has failed."""
    stop: Literal["abort", "drain"] = "abort"
    """What a TERM to the supervisor does with requests in flight."""
    stop_grace_s: float = 10.0
    """How long they get when it drains."""
    term_s: float = 5.0
    """How long the engine gets after an abort before TERM, and after TERM before KILL."""
    max_step_s: float = 60.0
    """A step that runs longer is a stall, whatever it does."""
    model_label: str = ""
    """What the user called the model, for display; the directory when empty."""
    typed: list[str] | None = None
    """Keys of `config` that were typed (a flag or the environment), not read from a file; None: all."""

    def engine_config(self) -> EngineConfig:
        """The checked config. Raises UsageError naming the setting."""
        try:
            return msgspec.convert(self.config, EngineConfig)
        except (msgspec.ValidationError, ConfigError) as error:
            raise UsageError(f"settings of {self.name!r} cannot be used", cause=str(error)) from None

    @property
    def model(self) -> str:
        return self.model_label or os.path.basename(str(self.config.get("model", "")).rstrip("/"))


def check_settings(settings: EngineSettings) -> EngineSettings:
    """The settings themselves. Raises UsageError naming what is wrong, or Refused."""
    check_name(settings.name)
    settings.engine_config()
    if RESTART_PATTERN.fullmatch(settings.restart) is None:
        raise UsageError(
            f"restart policy {settings.restart!r} is not known", cause="one of no, on-failure, on-failure:N, always"
        )
    if settings.join:
        check_join(settings.join, allow_remote=settings.allow_remote)
    for name in ("start_timeout_s", "max_step_s", "hold_limit_s"):
        if not getattr(settings, name) > 0:
            raise UsageError(f"{name} must be more than 0, not {getattr(settings, name)}")
    for name in ("stop_grace_s", "term_s"):
        if not getattr(settings, name) >= 0:
            raise UsageError(f"{name} must not be negative")
    return settings


def restart_limit(policy: str) -> int | None:
    """How many restarts within ten minutes the policy allows; 0 for none, None without limit."""
    if policy == "no":
        return 0
    if policy == "always":
        return None
    return int(policy.partition(":")[2] or DEFAULT_RESTARTS)


def differences(ours: EngineSettings, theirs: EngineSettings) -> list[str]:
    """Names of what differs, `config.X` for the engine's own; display names and the order of keys do not count."""
    skip = {"config", "name", "model_label", "typed"}
    left, right = msgspec.structs.asdict(ours), msgspec.structs.asdict(theirs)
    found = [key for key in left if key not in skip and left[key] != right[key]]
    keys = {*ours.config, *theirs.config}
    return sorted([*found, *(f"config.{key}" for key in keys if ours.config.get(key) != theirs.config.get(key))])
