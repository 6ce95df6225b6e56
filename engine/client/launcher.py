"""Spawns an engine of our own: `python -m engine`, or run_engine_core as a multiprocessing.Process target.

Enters: settings and a handshake address. Leaves: an EngineProcess. The child is a fresh interpreter in a session of its
own, so threads, torch and sockets of this program are no danger to it, and a Ctrl-C here is not one there. Only the
death pipe ties it to us: when this process ends, by whatever cause, the engine reads the end of file and ends too."""

from __future__ import annotations

import multiprocessing
import os
import site
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, TypeAlias

from engine.client.process import EngineProcess, StatusReader
from engine.config import EngineConfig

Launch: TypeAlias = Literal["command", "process"]

_OPTIONS = {
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "block_size": "--block-size",
    "dtype": "--dtype",
    "kv_memory": "--kv-memory",
    "num_gpu_blocks": "--num-gpu-blocks",
    "executor": "--executor",
    "kernels": "--kernels",
    "quantization": "--quantization",
    "threads": "--threads",
    "device": "--device",
    "seed": "--seed",
    "shutdown_timeout_s": "--shutdown-timeout",
    "orphan_grace_s": "--orphan-grace",
    "client_byte_budget": "--client-byte-budget",
    "dialect": "--dialect",
    "log_level": "--log-level",
}


@dataclass(slots=True)
class _Pipes:
    """Both pipes of one start. Ours: status_read, death_write. The engine's: status_write, death_read."""

    status_read: int
    status_write: int
    death_read: int
    death_write: int

    @staticmethod
    def open() -> _Pipes:
        return _Pipes(*os.pipe(), *os.pipe())

    def close_theirs(self) -> None:
        os.close(self.status_write)
        os.close(self.death_read)

    def close_ours(self) -> None:
        os.close(self.status_read)
        os.close(self.death_write)


def spawn(config: EngineConfig, address: str, engine_index: int, log_path: Path, launch: Launch) -> EngineProcess:
    """Starts the process and returns at once. Its stdout and stderr are appended to log_path. Raises OSError."""
    pipes = _Pipes.open()
    try:
        start = _spawn_command if launch == "command" else _spawn_process
        return start(config, address, engine_index, log_path, pipes)
    except BaseException:
        pipes.close_ours()
        raise
    finally:
        pipes.close_theirs()


# ---------------------------------------------------------------- python -m engine


def engine_arguments(config: EngineConfig, address: str, engine_index: int) -> list[str]:
    """The command line that stands for these settings. What is None is left out: the engine decides."""
    arguments = ["--handshake", address, "--engine-index", str(engine_index), "--model", config.model]
    for name, option in _OPTIONS.items():
        value = getattr(config, name)
        if value is not None and value != getattr(EngineConfig(model=""), name):
            arguments += [option, str(value)]
    if not config.enable_prefix_caching:
        arguments.append("--no-prefix-caching")
    if config.allow_unsafe_calls:
        arguments.append("--allow-unsafe-calls")
    return [*arguments, "--local-frontend"]


def _spawn_command(config: EngineConfig, address: str, index: int, log_path: Path, pipes: _Pipes) -> EngineProcess:
    command = [
        *(sys.executable, "-P", "-m", "engine"),
        *engine_arguments(config, address, index),
        *("--status-fd", str(pipes.status_write), "--death-fd", str(pipes.death_read)),
    ]
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(pipes.status_write, pipes.death_read),
            start_new_session=True,
            env=_environment(),
        )

    def reap() -> None:
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=1.0)

    return EngineProcess(child.pid, reap, StatusReader(pipes.status_read), pipes.death_write, log_path)


def _environment() -> dict[str, str]:
    """Ours, and the place of this package when it is not installed: -P keeps the working directory off the path."""
    root = str(Path(__file__).resolve().parents[2])
    environment = dict(os.environ)
    if root not in site.getsitepackages():
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{known}{os.pathsep}{root}" if known else root
    return environment


# ---------------------------------------------------------------- multiprocessing


def _spawn_process(config: EngineConfig, address: str, index: int, log_path: Path, pipes: _Pipes) -> EngineProcess:
    context = multiprocessing.get_context("spawn")
    status = Connection(os.dup(pipes.status_write), readable=False)
    death = Connection(os.dup(pipes.death_read), writable=False)
    child = context.Process(
        target=run_in_child, args=(config, address, index, status, death, str(log_path)), name=f"engine-{index}"
    )
    with status, death:  # closes our copies; the child has its own
        child.start()
    assert child.pid is not None

    def reap() -> None:
        child.join(1.0)
        if child.exitcode is not None:
            child.close()

    return EngineProcess(child.pid, reap, StatusReader(pipes.status_read), pipes.death_write, log_path)


def run_in_child(
    config: EngineConfig, address: str, index: int, status: Connection, death: Connection, log_path: str
) -> None:
    """Runs in the new process, before anything heavy is imported there."""
    os.setsid()
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for standard in (1, 2):
        os.dup2(log, standard)
    os.close(log)
    from engine.run import Launch as Ties
    from engine.run import run_engine_core

    ties = Ties(
        address,
        engine_index=index,
        local_frontend=True,
        status_fd=os.dup(status.fileno()),
        death_fd=os.dup(death.fileno()),
    )
    run_engine_core(config, ties)
