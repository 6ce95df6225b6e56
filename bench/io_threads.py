"""How much longer a step is while the two IO threads are busy: the same steps with quiet and with busy threads.

alone      an engine core in this process, nobody but the loop
quiet      an engine process whose threads carry the outputs of the running requests and nothing else
busy       the same, and RATE messages a second on top: utility calls, requests that end at once, aborts
neighbour  quiet again, beside a foreign process that takes as much CPU as the threads and this frontend took in `busy`

Rounds in turn, the median of each. A step's length is what the core itself measures: schedule, execute, sample, update.
The forward pass leaves one core to everybody else (--threads). What `busy` loses against `neighbour` it loses to the
threads: the interpreter, locks, queues. What `neighbour` loses against `quiet` the machine takes (shared caches, memory
and core clocks), whoever asks for the CPU.
usage: python -m bench.io_threads MODEL_DIR [--requests 16] [--rate 200] [--seconds 2.5] [--rounds 12] [--threads N]"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

import msgspec

from bench.facts import note, percentile, print_result, summary_ms
from bench.wire import poll_ms
from engine.client import EngineConfig, SamplingParams, new_request
from engine.client.start import StartedEngine, start_engine
from engine.codec import decode_outputs, encode_request
from engine.core import EngineCore
from engine.messages import AbortIds, EngineCoreOutputs, UtilityCall

SHORT = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)


class RawFrontend:
    """The engine's frontend without a client library: what is measured is the engine's side."""

    def __init__(self, started: StartedEngine) -> None:
        self.started = started
        self.live: set[str] = set()
        self._sent = 0
        # Written once: packing 500 tokens anew for each message would be this process's load, not the engine's. An id
        # may come again, for the request before it has ended when it was admitted.
        gone = msgspec.structs.replace(new_request(list(range(10, 510)), SHORT), abort_immediately=True)
        mix = (UtilityCall(0, 1, "is_sleeping", []), gone, AbortIds(["nobody"]))
        self._mix = [[started.identity, *encode_request(message)] for message in mix]

    def send(self, message: object) -> None:
        self.started.input_socket.send_multipart([self.started.identity, *encode_request(message)])  # type: ignore[arg-type]

    def keep_running(self, requests: int, params: SamplingParams) -> None:
        """Tops the long requests up to `requests`."""
        while len(self.live) < requests:
            request = new_request([10 + len(self.live), 20, 7, 8, 9, 10, 11, 12], params)
            self.live.add(request.request_id)
            self.send(request)

    def disturb(self) -> None:
        """One message of the mix: a call, a request that is aborted as soon as it is admitted, an abort of nobody."""
        self.started.input_socket.send_multipart(self._mix[self._sent % len(self._mix)])
        self._sent += 1

    def receive(self, timeout_s: float) -> EngineCoreOutputs | None:
        if not self.started.output_socket.poll(poll_ms(timeout_s)):
            return None
        message = decode_outputs(self.started.output_socket.recv_multipart())
        if not isinstance(message, EngineCoreOutputs):
            raise SystemExit(self.started.process.describe_end())
        self.live -= {output.request_id for output in message.outputs if output.finished}
        return message


class Neighbour:
    """A process that has nothing to do with the engine: wakes RATE times a second, takes `seconds` of CPU each time."""

    def __init__(self, rate: float, seconds: float) -> None:
        arguments = [sys.executable, "-c", NEIGHBOUR, str(rate), str(seconds)]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def __enter__(self) -> Neighbour:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


NEIGHBOUR = """
import sys, time
rate, seconds = map(float, sys.argv[1:])
print("up", flush=True)
due, page = time.monotonic(), bytes(16384)
while True:
    due += 1 / rate
    time.sleep(max(0.0, due - time.monotonic()))
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        bytearray(page)
"""


class CpuOfOthers:
    """CPU seconds of this process and of the engine's threads that are not in the forward pass, since it was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = time.monotonic()
        self._threads = self._read()
        self._own = time.process_time()

    def _read(self) -> dict[str, float]:
        found = {}
        for thread in os.listdir(f"/proc/{self._pid}/task"):
            with open(f"/proc/{self._pid}/task/{thread}/schedstat") as lines:
                found[thread] = int(lines.read().split()[0]) / 1e9
        return found

    def seconds(self) -> float:
        """Whatever took more than half of the time was computing."""
        most = (time.monotonic() - self._began) / 2
        taken = (now - self._threads.get(thread, 0.0) for thread, now in self._read().items())
        return time.process_time() - self._own + sum(cpu for cpu in taken if cpu < most)


def steps_of_process(
    frontend: RawFrontend, given: argparse.Namespace, params: SamplingParams, rate: float
) -> list[float]:
    """Lengths of the steps over given.seconds, ms, of full decode batches only."""
    times: list[float] = []
    end = time.monotonic() + given.seconds
    due = time.monotonic()
    while (now := time.monotonic()) < end:
        frontend.keep_running(given.requests, params)
        while rate and due <= now:
            frontend.disturb()
            due += 1 / rate
        message = frontend.receive(min(due - now if rate else 0.05, 0.05))
        stats = message.scheduler_stats if message is not None else None
        if stats is not None and stats.step_timings is not None and stats.num_scheduled_tokens == given.requests:
            times.append(stats.step_timings.total_ms)
    return times


def steps_alone(core: EngineCore, given: argparse.Namespace, params: SamplingParams) -> list[float]:
    """The same in this process, with nobody but this loop."""
    times: list[float] = []
    end = time.monotonic() + given.seconds
    added = 0
    while time.monotonic() < end:
        while core.scheduler.num_unfinished < given.requests:
            added += 1
            core.add_request(core.preprocess_add_request(new_request([10 + added, 20, 7, 8, 9, 10, 11, 12], params)))
        core.step()
        if core.last_step.num_tokens == given.requests:
            times.append(core.timings.total_ms)
    core.abort_requests(None)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument(
        "--executor", default="uniproc", help="one whose steps take time, or this frontend falls behind"
    )
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second while busy")
    parser.add_argument("--seconds", type=float, default=2.5)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    given = parser.parse_args()
    length = 1024
    config = EngineConfig(
        model=given.model,
        executor=given.executor,
        threads=given.threads,
        max_model_len=length,
        max_num_seqs=given.requests + 8,
        num_gpu_blocks=length // 16 * (given.requests + 4),
        enable_prefix_caching=False,
    )
    params = SamplingParams(temperature=0.0, max_tokens=length - 32, ignore_eos=True)
    times: dict[str, list[list[float]]] = {"alone": [], "quiet": [], "busy": [], "neighbour": []}
    others: list[float] = []
    started = start_engine(config)
    try:
        frontend = RawFrontend(started)
        core = EngineCore(config)
        try:
            for round_ in range(given.rounds):
                # The process is emptied before the core in this process runs, and the other way round.
                times["alone"].append(steps_alone(core, given, params))
                times["quiet"].append(steps_of_process(frontend, given, params, 0.0))
                cpu = CpuOfOthers(started.process.pid)
                times["busy"].append(steps_of_process(frontend, given, params, given.rate))
                others.append(cpu.seconds() / given.seconds)
                with Neighbour(given.rate, others[-1] / given.rate):
                    times["neighbour"].append(steps_of_process(frontend, given, params, 0.0))
                empty(frontend)
                said = ", ".join(f"{name} {percentile(rounds[-1], 0.5):.3f} ms" for name, rounds in times.items())
                note(f"round {round_}: {said}")
        finally:
            core.shutdown()
    finally:
        started.abandon()
    print_result("io_threads", given, {**summarise(times), "cores_of_others": round(statistics.median(others), 3)})


def summarise(times: dict[str, list[list[float]]]) -> dict[str, object]:
    """Ratios are of the medians of one round, and then the median over the rounds."""
    medians = {name: [percentile(values, 0.5) for values in rounds] for name, rounds in times.items()}

    def ratio(of: str, to: str) -> float:
        return round(statistics.median(a / b for a, b in zip(medians[of], medians[to], strict=True)), 4)

    return {
        "step_ms": {
            name: summary_ms([value for values in rounds for value in values]) for name, rounds in times.items()
        },
        "median_ms_by_round": {name: [round(value, 4) for value in values] for name, values in medians.items()},
        "busy_per_neighbour": ratio("busy", "neighbour"),
        "neighbour_per_quiet": ratio("neighbour", "quiet"),
        "busy_per_alone": ratio("busy", "alone"),
        "busy_per_quiet": ratio("busy", "quiet"),
        "quiet_per_alone": ratio("quiet", "alone"),
    }


def empty(frontend: RawFrontend) -> None:
    """Aborts what runs and reads until it is gone."""
    frontend.send(AbortIds(sorted(frontend.live)))
    end = time.monotonic() + 30
    while frontend.live:
        frontend.receive(0.1)
        if time.monotonic() > end:
            raise SystemExit("the engine does not abort")


if __name__ == "__main__":
    main()
