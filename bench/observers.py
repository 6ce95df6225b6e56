"""What do observers cost the engine? CPU time per step with none and with ten `enginectl top`, in turn.

An engine without a model, a fixed pause a step, under its supervisor, with a full batch and a line behind it. What
counts is CPU time (the kernel's own, per thread), so that what else runs on the machine matters little.
usage: python -m bench.observers MODEL_DIR [--observers 10] [--seconds 8] [--rounds 3] [--requests 300]"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import zmq

from bench.facts import note, percentile, print_result
from bench.wire import poll_ms
from engine.executor.null import NullExecutor
from engine.messages import SamplingParams
from engine.scheduler.output import ModelRunnerOutput, SchedulerOutput

PAUSE_S = 0.02
RUNNING = 64
START_S = 60.0
SETTLE_S = 3.0


class PacedExecutor(NullExecutor):
    """Sleeps instead of computing, so that what is left of a step is the loop's own work."""

    def execute_model(self, step: SchedulerOutput) -> ModelRunnerOutput:
        time.sleep(PAUSE_S)
        return super().execute_model(step)


def cpu_ns(pid: int) -> dict[str, int]:
    """CPU time so far by thread name, ns."""
    found: dict[str, int] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        found[name] = found.get(name, 0) + int((task / "schedstat").read_text().split()[0])
    return found


class Load:
    """Requests through the control socket that never end; their tokens are read and forgotten."""

    def __init__(self, path: Path, count: int, model_len: int) -> None:
        from enginectl.control import ControlRequest
        from enginectl.control_verbs import GenerateArgs
        from enginectl.envelope import encode, pack

        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.connect(f"ipc://{path}")
        params = SamplingParams(max_tokens=model_len, ignore_eos=True)
        for number in range(count):
            args = GenerateArgs(prompt_token_ids=[number + 3, 7, 11, 13], sampling_params=params)
            self._socket.send(encode(ControlRequest(id=number + 1, verb="generate", args=pack(args))))

    def read_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._socket.poll(poll_ms(left)):
                self._socket.recv()

    def close(self) -> None:
        self._context.destroy(0)


def observe(count: int, name: str) -> list[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "enginectl", "top", name, "--stream", "-i", "1s"]
    return [subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(count)]


def one_phase(load: Load, pid: int, seconds: float) -> dict[str, float]:
    """Figures of one stretch of time. `overhead`: a step without its pause."""
    from enginectl.client import connect

    with connect("bench") as engine:
        before, began = cpu_ns(pid), engine.call("ping")
        load.read_for(seconds)
        after, ended = cpu_ns(pid), engine.call("ping")
        assert isinstance(began, dict) and isinstance(ended, dict)
        steps = int(ended["step_counter"]) - int(began["step_counter"])  # type: ignore[arg-type]
        rows = engine.call("flight_record", steps)
    own = [row["schedule_ms"] + row["update_ms"] for row in rows]  # type: ignore[union-attr, index, operator, call-overload]
    total = sum(after.values()) - sum(before.values())
    return {
        "steps": steps,
        "cpu_us_per_step": round(total / steps / 1000, 2),
        "loop_us_p50": round(percentile(own, 0.5) * 1000, 2),  # type: ignore[arg-type]
    }


def run(given: argparse.Namespace) -> dict[str, object]:
    from enginectl.client import connect
    from enginectl.launch import launch_supervisor
    from enginectl.rundir import EngineEntry, save_settings
    from enginectl.settings import EngineSettings

    config: dict[str, str | int | float | bool | None] = {
        "model": os.path.abspath(given.model), "executor": "bench.observers:PacedExecutor", "max_num_seqs": RUNNING,
        "num_gpu_blocks": RUNNING * 150, "max_model_len": 2048,
    }  # fmt: skip
    save_settings(EngineSettings(name="bench", config=config, env={"PYTHONPATH": os.getcwd()}))
    launch_supervisor("bench", timeout_s=START_S)
    phases: dict[int, list[dict[str, float]]] = {0: [], given.observers: []}
    with connect("bench") as engine:
        try:
            end = time.monotonic() + START_S
            while (view := engine.status()).ready is None or view.process is None:
                if time.monotonic() > end or view.state == "failed":
                    raise SystemExit(f"the engine is {view.state}: {view.reason}")
                time.sleep(0.2)
            load = Load(EngineEntry.read("bench").control_socket, given.requests, 2000)
            load.read_for(SETTLE_S)
            for _ in range(given.rounds):
                for count in phases:
                    observers = observe(count, "bench")
                    load.read_for(SETTLE_S)
                    phases[count].append(one_phase(load, view.process.pid, given.seconds))
                    note(f"{count} observers: {phases[count][-1]}")
                    for child in observers:
                        child.terminate()
                        child.wait()
            load.close()
        finally:
            engine.stop(0.0)
    return summary(phases, given.observers)


def summary(phases: dict[int, list[dict[str, float]]], observers: int) -> dict[str, object]:
    """A ratio for each round, then the median over the rounds: a slow drift of the machine cancels out."""
    result: dict[str, object] = {"phases": {str(count): found for count, found in phases.items()}}
    for key in ("cpu_us_per_step", "loop_us_p50"):
        ratios = [many[key] / none[key] for none, many in zip(phases[0], phases[observers], strict=True)]
        result[f"{key}_ratio"] = round(median(ratios), 4)
    added_us = [
        many["cpu_us_per_step"] - none["cpu_us_per_step"]
        for none, many in zip(phases[0], phases[observers], strict=True)
    ]
    result["added_us_per_step"] = round(median(added_us), 2)
    result["added_share_of_step"] = round(median(added_us) / (PAUSE_S * 1e6), 5)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="its config.json is all that is read")
    parser.add_argument("--observers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ob-") as home:
        os.environ["ENGINECTL_STATE_DIR"] = f"{home}/s"
        os.environ["ENGINECTL_RUNTIME_DIR"] = f"{home}/r"
        print_result("observers", given, run(given))


if __name__ == "__main__":
    main()
