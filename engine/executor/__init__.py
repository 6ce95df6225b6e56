"""Runs the model for one scheduled step, in this process or in others."""

from __future__ import annotations

import importlib

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.executor.base import Executor


def make_executor(config: EngineConfig) -> Executor:
    """The executor that `config.executor` names: uniproc, null, or module:Class. Raises ConfigError."""
    if config.executor == "uniproc":
        from engine.executor.uniproc import UniProcExecutor

        return UniProcExecutor(config)
    if config.executor == "null":
        from engine.executor.null import NullExecutor

        return NullExecutor(config)
    module, _, name = config.executor.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"executor {config.executor!r} cannot be imported: {error}") from None
    if not (isinstance(made, type) and issubclass(made, Executor)):
        raise ConfigError(f"executor {config.executor!r} is not a subclass of engine.executor.base.Executor")
    executor: Executor = made(config)
    return executor
