"""Do memory and step time stay flat over many requests, and how long does the garbage collector stop the loop?

Short requests, always so many at once, through one engine process. Ten tenths of the run: the engine's memory at the
end of each, and the length of its steps. Every collection in the engine is timed from its warm-up on.
usage: python -m bench.soak MODEL_DIR [--requests 100000] [--running 32] [--tokens 8] [--executor null|uniproc]"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from bench.facts import note, print_result, summary_ms
from bench.gc_watch import FILE
from bench.steady import Steady, greedy, prompt
from engine.client import EngineConfig

TENTHS = 10
LENGTH = 24
LONG_PAUSE_MS = 5.0


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def tenth(engine: Steady, given: argparse.Namespace, first: int, count: int) -> dict[str, object]:
    """Runs `count` requests; the last of them may still live at its end."""
    steps: list[float] = []
    added, began = 0, time.perf_counter()
    while added < count or len(engine.live) >= given.running:
        while added < count and len(engine.live) < given.running:
            engine.add(prompt(LENGTH, first + added), greedy(given.tokens))
            added += 1
        stats = engine.next().scheduler_stats
        if stats is not None and stats.step_timings is not None:
            steps.append(stats.step_timings.total_ms)
    seconds = time.perf_counter() - began
    return {
        "rss_mib": resident_mib(engine.pid),
        "step_ms": summary_ms(steps),
        "requests_s": round(count / seconds, 1),
    }


def pauses(path: Path) -> dict[str, object]:
    found: list[tuple[float, float, float]] = json.loads(path.read_text())
    lengths, cpu = [row[1] for row in found], [row[2] for row in found]
    return {
        "collections": len(found),
        "by_generation": {str(kind): sum(row[0] == kind for row in found) for kind in range(3)},
        "longest_ms": round(max(lengths, default=0.0), 3),
        "longest_cpu_ms": round(max(cpu, default=0.0), 3),
        "total_cpu_ms": round(sum(cpu), 1),
        f"over_{LONG_PAUSE_MS:g}_ms": sum(length > LONG_PAUSE_MS for length in lengths),
    }


def summarise(tenths: list[dict[str, object]]) -> dict[str, object]:
    """Growth is from the second tenth on: the first fills caches and pools."""
    rss = [float(row["rss_mib"]) for row in tenths]  # type: ignore[arg-type]
    step = [float(row["step_ms"]["p50"]) for row in tenths]  # type: ignore[index]
    return {
        "tenths": tenths,
        "rss_growth_mib": round(rss[-1] - rss[1], 1),
        "step_p50_last_per_second": round(step[-1] / step[1], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=20_000, help="100,000 for the whole answer")
    parser.add_argument("--running", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=8, help="of each request")
    parser.add_argument("--executor", choices=("null", "uniproc"), default="null")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "gc.json"
        os.environ[FILE] = str(path)
        engine = Steady(
            EngineConfig(
                model=given.model,
                executor=f"bench.gc_watch:{given.executor.capitalize()}",
                threads=given.threads,
                max_model_len=256,
                max_num_seqs=given.running,
                num_gpu_blocks=4 * given.running,
            )
        )
        began = time.monotonic()
        try:
            share = given.requests // TENTHS
            tenths = []
            for place in range(TENTHS):
                tenths.append(tenth(engine, given, place * share, share))
                note(f"tenth {place + 1}: {tenths[-1]}")
            engine.finish()
            seconds = time.monotonic() - began
        finally:
            engine.close()
        result = {**summarise(tenths), "seconds": round(seconds, 1), "gc": pauses(path)}
    print_result("soak", given, result)


if __name__ == "__main__":
    main()
