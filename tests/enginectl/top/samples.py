"""Views, requests and snapshots to draw: made of numbers, the same every time."""

from __future__ import annotations

from enginectl.control import EngineView, EventView, ExitInfo, PhaseInfo, RequestView
from enginectl.control_stats import ProcessInfo, SlowStep, Stats, StepStats
from enginectl.top.snapshot import Link, Snapshot

NOW = 1_700_000_000.0
WAVE = [float((i * 7) % 11 + 10) for i in range(60)]


def step_stats() -> StepStats:
    return StepStats(
        now_ms=19.6,
        p50_ms=19.8,
        p95_ms=24.1,
        p99_ms=61.0,
        max_ms=88.2,
        steps=2944,
        schedule_ms=0.6,
        execute_ms=17.9,
        sample_ms=0.7,
        update_ms=0.4,
        idle_ms=0.2,
        observer_us=38.0,
        slow=2,
        last_slow=SlowStep(step=88197, ms=61.0, tokens=8193, prefill_tokens=8192),
        histogram=[0, 0, 30, 1900, 800, 150, 50, 14, 0, 0, 0],
        recent_ms=WAVE * 2,
    )


def stats(running: int = 38, waiting: int = 4) -> Stats:
    history = {
        "running": WAVE,
        "waiting": WAVE[::-1],
        "decode_tok_s": [v * 90 for v in WAVE],
        "prefill_tok_s": [v * v for v in WAVE],
        "kv_used_ratio": [v / 40 for v in WAVE],
        "prefix_hit_ratio": [v / 30 for v in WAVE],
    }
    return Stats(
        running=running,
        waiting=waiting,
        kv_used_ratio=0.61,
        kv_blocks=36704,
        kv_used_blocks=22389,
        prefix_hit_ratio=0.47,
        decode_tok_s=1912.0,
        prefill_tok_s=6123.0,
        requests_in_s=6.2,
        ttft_p50_s=0.21,
        ttft_p95_s=0.74,
        tpot_p50_ms=19.8,
        tpot_p95_ms=24.0,
        step=step_stats(),
        step_counter=88213,
        loop_counter=90000,
        loop_age_s=0.02,
        input_queue=0,
        output_queue=0,
        history=history,
    )


def view(state: str = "busy", **changes: object) -> EngineView:
    fields: dict[str, object] = {
        "name": "qwen",
        "state": state,
        "instance": "7f3a91",
        "model": "/models/qwen2.5-7b",
        "uptime_s": 7873.0,
        "stats": stats(),
        "process": ProcessInfo(pid=41873, start_time=1.0, cpu_percent=104.0, rss_bytes=3 << 30),
        "supervisor": ProcessInfo(pid=41869, start_time=1.0, cpu_percent=0.5, rss_bytes=21 << 20),
        "observed_at": NOW,
    }
    return EngineView(**(fields | changes))  # type: ignore[arg-type]


def requests(count: int = 42) -> tuple[RequestView, ...]:
    """The first is a hog, every tenth waits."""
    rows = []
    for i in range(count):
        waits = i % 10 == 9
        rows.append(
            RequestView(
                id=f"cmpl-{i:03x}-0-8a1f0945",
                external_id=f"cmpl-{i:03x}",
                state="waiting" if waits else "running",
                age_s=0.3 + 1.7 * i,
                prompt_tokens=128 * (i % 33 + 1),
                output_tokens=0 if waits else 31 * i,
                max_tokens=2048,
                blocks=0 if waits else 8 + i,
                blocks_needed=768 if waits else 1,
                cached_ratio=None if waits else 0.62,
                ttft_s=None if waits else 0.12 + i / 100,
                tpot_ms=None if waits else 19.7 + i / 10,
                client=i % 2,
                waits_for="kv full" if waits else "",
                is_hog=i == 0,
                note="61% of the KV cache" if i == 0 else "",
            )
        )
    return tuple(rows)


def events() -> tuple[EventView, ...]:
    return (
        EventView(ts=NOW - 31, seq=1, type="call", text="reset_prefix_cache by uid 1000"),
        EventView(ts=NOW, seq=2, type="slow-step", text="88197 (61ms): prefill 8,192 tokens"),
    )


def snapshot(state: str = "busy", count: int = 42, **changes: object) -> Snapshot:
    fields: dict[str, object] = {
        "ts": NOW,
        "seq": 5,
        "name": "qwen",
        "link": Link(state="live"),
        "view": view(state),
        "requests": requests(count),
        "requests_total": count,
        "events": events(),
        "engines": ("qwen", "tiny"),
    }
    return Snapshot(**(fields | changes))  # type: ignore[arg-type]


def starting() -> Snapshot:
    phases = [
        PhaseInfo(name="handshake", began_s=0.0, took_s=0.2, last_took_s=0.2),
        PhaseInfo(name="load weights", began_s=0.2, took_s=11.4, last_took_s=11.0, detail="15.2 GiB in 8 shards"),
        PhaseInfo(name="warm-up", began_s=11.6, last_took_s=28.0),
    ]
    return snapshot(view=view("starting", phases=phases, uptime_s=21.0, stats=None, last_ready_after_s=61.0), count=0)


def dead() -> Snapshot:
    end = ExitInfo(
        signal="SIGKILL", cause="killed from outside", phase="ready", at=NOW - 5, evidence="/state/evidence/1"
    )
    return snapshot(view=view("exited", last_exit=end))
