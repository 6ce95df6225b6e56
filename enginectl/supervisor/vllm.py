"""How an unmodified `vllm serve` is started as an engine or as a frontend, and which of its processes computes.

Settings come in, command lines and environments leave."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from enginectl.identity import ProcStat, read_stat
from enginectl.settings import EngineSettings

GUARD = Path(__file__).with_name("guard.py")
HOOKS = Path(__file__).with_name("hooks")
"""Put before PYTHONPATH: makes SIGUSR2 print the stacks of every Python process of the engine."""
FLAGS = {
    "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "block_size": "--block-size",
    "num_gpu_blocks": "--num-gpu-blocks-override",
    "dtype": "--dtype",
    "seed": "--seed",
}
"""Settings of ours that vLLM has too."""


def guarded(command: list[str], death_fd: int, term_s: float) -> list[str]:
    return [sys.executable, "-S", str(GUARD), "--death-fd", str(death_fd), "--term-s", str(term_s), "--", *command]


def engine_command(settings: EngineSettings, handshake: str) -> list[str]:
    """`vllm serve --headless` of the given interpreter, as engine 0 of our handshake address."""
    host, _, port = handshake.removeprefix("tcp://").rpartition(":")
    command = [settings.python, "-m", "vllm.entrypoints.cli.main", "serve", str(settings.config["model"]), "--headless",
               "--data-parallel-size", "1", "--data-parallel-size-local", "1",
               "--data-parallel-address", host, "--data-parallel-rpc-port", port]  # fmt: skip
    for key, value in settings.config.items():
        if key in FLAGS and value is not None:
            command += [FLAGS[key], str(value)]
    if settings.config.get("enable_prefix_caching") is False:
        command.append("--no-enable-prefix-caching")
    return [*command, *settings.engine_args]


def frontend_command(settings: EngineSettings, port: int) -> list[str]:
    """The API server of the command that was split, which waits for its engine on that port."""
    return [settings.python, "-m", "vllm.entrypoints.cli.main", "serve", *(settings.frontend_args or []),
            "--data-parallel-size", "1", "--data-parallel-size-local", "0",
            "--data-parallel-address", "127.0.0.1", "--data-parallel-rpc-port", str(port)]  # fmt: skip


def environment(settings: EngineSettings) -> dict[str, str]:
    """The interpreter's own packages only: what we import from is not for it."""
    found = {**os.environ, **settings.env, "PYTHONUNBUFFERED": "1"}
    theirs = settings.env.get("PYTHONPATH", "")
    found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HOOKS), theirs]))
    folder = os.path.dirname(settings.python)
    found["PATH"] = os.pathsep.join([folder, found.get("PATH", os.defpath)])
    if settings.gpus is not None:
        found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, settings.gpus))
    return found


def core_pid(members: list[int]) -> int:
    """The process that runs the engine core: by the name it gives itself, else the one with the most memory."""
    stats = {pid: stat for pid in members if (stat := read_stat(pid)) is not None}
    named = [pid for pid in stats if _name(pid).startswith("VLLM::EngineCor")]
    if named:
        return named[0]

    def size(pid: int) -> int:
        stat: ProcStat = stats[pid]
        return stat.rss_bytes

    return max(stats, key=size, default=0)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
