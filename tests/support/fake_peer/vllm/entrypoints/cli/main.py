"""Stands in for `vllm serve`, with its processes and its habits, where the real one is not installed.

With --headless: a launcher whose child is an engine core (ours, with a paced executor) that joins the handshake over
TCP; when the child is killed the launcher ends with status 0 and says nothing. Else an API server: a bare frontend that
waits for its engine on the rpc port, then answers /health on its HTTP port, 503 once it hears that the engine died."""

from __future__ import annotations

import argparse
import http.server
import os
import signal
import subprocess
import sys
import threading
from typing import Any


def parse() -> Any:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    parser.add_argument("model")
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    for name in ("data-parallel-size", "data-parallel-size-local", "data-parallel-address", "data-parallel-rpc-port",
                 "max-num-seqs", "max-model-len", "dtype", "served-model-name"):  # fmt: skip
        parser.add_argument(f"--{name}")
    parser.add_argument("--break", dest="broken", action="store_true")
    return parser.parse_args()


def engine(given: Any) -> int:
    if given.broken:
        print("ERROR ValueError: weights are broken on purpose", file=sys.stderr)
        return 0
    command = [sys.executable, "-m", "engine", "--engine-index", "0", "--model", given.model, "--threads", "1",
               "--handshake", f"tcp://{given.data_parallel_address}:{given.data_parallel_rpc_port}",
               "--executor", "tests.support.paced_executor:PacedExecutor", "--num-gpu-blocks", "256",
               "--max-num-seqs", given.max_num_seqs or "8"]  # fmt: skip
    child = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGTERM))
    child.wait()
    return 0


def frontend(given: Any) -> int:
    from tests.support.frontend import RawFrontend

    address = f"tcp://{given.data_parallel_address}:{given.data_parallel_rpc_port}"
    with RawFrontend(handshake=address) as bare:
        bare.wait_ready(120)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(503 if bare.dead_clients else 200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = http.server.HTTPServer(("127.0.0.1", given.port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"serving on {given.port}, pid {os.getpid()}", flush=True)
        while not bare.dead_clients:
            bare.read_some(0.2)
        server.shutdown()
    return 1


if __name__ == "__main__":
    given = parse()
    sys.exit(engine(given) if given.headless else frontend(given))
