"""`python -m engine`: one engine process that joins whatever frontend has bound the handshake address."""

from __future__ import annotations

import argparse
import os

from engine import limits
from engine.config import DIALECTS, DTYPES, KERNELS, QUANTIZATIONS, EngineConfig, parse_size
from engine.errors import ConfigError
from engine.run import Launch, run_engine_core


def parse_arguments(argv: list[str] | None = None) -> tuple[EngineConfig, Launch]:
    """Settings and how we are tied to our parent. Exits with status 2 on a usage error."""
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    parser.add_argument("--handshake", required=True, metavar="ADDRESS", help="tcp://127.0.0.1:PORT or ipc://PATH")
    parser.add_argument(
        "--handshake-timeout", type=float, default=limits.INIT_DEADLINE_S, metavar="S", help="wait so long for INIT"
    )
    parser.add_argument("--engine-index", type=int, default=0, metavar="N")
    parser.add_argument("--local-frontend", action="store_true", help="say in HELLO that the frontend started us")
    parser.add_argument("--status-fd", type=int, metavar="FD", help="write start phases here as JSON lines")
    parser.add_argument("--death-fd", type=int, metavar="FD", help="end when this pipe is closed")
    parser.add_argument("--parent-pid", type=int, metavar="PID", help="end when this parent does")
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="config.json, *.safetensors, tokenizer.json")
    add("--dtype", choices=DTYPES, default="auto")
    add("--max-model-len", type=int, metavar="TOKENS")
    add("--max-num-seqs", type=int, default=64, metavar="N")
    add("--max-num-batched-tokens", type=int, default=2048, metavar="TOKENS")
    add("--block-size", type=int, default=16, metavar="TOKENS")
    add("--kv-memory", metavar="SIZE", help="1GiB, 512MiB; default: a share of the free memory")
    add("--num-gpu-blocks", type=int, metavar="N", help="exactly so many KV blocks")
    add("--no-prefix-caching", dest="enable_prefix_caching", action="store_false")
    add("--executor", default="uniproc", help="uniproc, null or module:Class")
    add("--device", default="auto")
    add("--kernels", choices=KERNELS, default="auto", help="compiled steps, or torch alone; default: when built")
    add("--quantization", choices=QUANTIZATIONS, default="none", help="round weights to 8 or 4 bits at load")
    add("--threads", type=int, metavar="N")
    add("--seed", type=int, default=0)
    add(
        "--shutdown-timeout",
        dest="shutdown_timeout_s",
        type=float,
        default=0.0,
        metavar="S",
        help="on SIGTERM let requests finish for so long",
    )
    add("--orphan-grace", dest="orphan_grace_s", type=float, default=5.0, metavar="S")
    add("--client-byte-budget", default="256MiB", metavar="SIZE")
    add("--dialect", choices=DIALECTS, default="auto", help="layout of outputs; default: as each client shows")
    add("--allow-unsafe-calls", action="store_true")
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    given = vars(parser.parse_args(argv))
    launch = Launch(
        handshake_address=given.pop("handshake"),
        handshake_timeout_s=given.pop("handshake_timeout"),
        engine_index=given.pop("engine_index"),
        local_frontend=given.pop("local_frontend"),
        status_fd=given.pop("status_fd"),
        death_fd=given.pop("death_fd"),
        parent_pid=given.pop("parent_pid"),
    )
    try:
        for name in ("kv_memory", "client_byte_budget"):
            given[name] = None if given[name] is None else parse_size(given[name])
        return EngineConfig(**given), launch
    except ConfigError as error:
        parser.error(str(error))


def main() -> None:
    config, launch = parse_arguments()
    if launch.status_fd is not None:
        os.set_inheritable(launch.status_fd, False)
    run_engine_core(config, launch)


if __name__ == "__main__":
    main()
