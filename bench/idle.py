"""What an idle engine and its supervisor take of a core: the CPU of all their threads over a minute without requests.

Read from the kernel's own account (/proc/PID/task/*/schedstat), so what else runs on the machine matters little.
usage: python -m bench.idle MODEL_DIR [--seconds 60] [--executor uniproc]"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from bench.facts import note, print_result

START_S = 300.0
SETTLE_S = 5.0


def cpu_s(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def watch(given: argparse.Namespace) -> dict[str, object]:
    from enginectl.client import connect
    from enginectl.launch import launch_supervisor
    from enginectl.rundir import EngineEntry, save_settings
    from enginectl.settings import EngineSettings

    config: dict[str, str | int | float | bool | None] = {
        "model": os.path.abspath(given.model), "executor": given.executor, "kv_memory": 256 * 1024**2,
    }  # fmt: skip
    save_settings(EngineSettings(name="bench", config=config))
    launch_supervisor("bench", timeout_s=START_S)
    try:
        with connect("bench") as engine:
            end = time.monotonic() + START_S
            while (view := engine.status()).state != "idle" or view.process is None:
                if time.monotonic() > end or view.state == "failed":
                    raise SystemExit(f"the engine is {view.state}: {view.reason}")
                time.sleep(0.2)
        record = EngineEntry.read("bench").record
        if record is None or record.supervisor is None:
            raise SystemExit("the engine has no record")
        return shares({"engine": view.process.pid, "supervisor": record.supervisor.pid}, given.seconds)
    finally:
        with connect("bench") as engine:
            engine.stop(0.0)
        EngineEntry.read("bench").wait_gone(10.0)


def shares(pids: dict[str, int], seconds: float) -> dict[str, object]:
    """Nobody is connected meanwhile."""
    note(f"{seconds:g} s without a request")
    time.sleep(SETTLE_S)
    before, began = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    share = {name: (cpu_s(pid) - before[name]) / took for name, pid in pids.items()}
    percent = {f"{name}_percent_of_core": round(100 * value, 3) for name, value in share.items()}
    return {**percent, "together_percent_of_core": round(100 * sum(share.values()), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--executor", default="uniproc")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="idle-") as home:
        os.environ["ENGINECTL_STATE_DIR"] = f"{home}/s"
        os.environ["ENGINECTL_RUNTIME_DIR"] = f"{home}/r"
        print_result("idle", given, watch(given))


if __name__ == "__main__":
    main()
