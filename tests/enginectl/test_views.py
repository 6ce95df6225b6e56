from __future__ import annotations

import time

from engine.messages import EngineCoreReadyResponse
from enginectl.control import EngineView, ExitInfo, PhaseInfo, RequestView
from enginectl.control_stats import ProcessInfo, Stats, StepStats
from enginectl.starting import start_failed
from enginectl.views import PS_HEADERS, phase_line, ps_row, ready_lines, request_row, status_lines

READY = EngineCoreReadyResponse(
    max_model_len=32768,
    num_gpu_blocks=36704,
    block_size=16,
    dtype="bfloat16",
    kv_cache_size_tokens=587264,
    kv_cache_max_concurrency=17.92,
    max_num_seqs=256,
    max_num_batched_tokens=8192,
)


def busy() -> EngineView:
    stats = Stats(running=38, waiting=4, kv_used_ratio=0.61, decode_tok_s=1912.3, step=StepStats(p50_ms=19.8))
    return EngineView(
        name="qwen",
        state="busy",
        process=ProcessInfo(pid=41873, start_time=1),
        uptime_s=7865,
        stats=stats,
        model="qwen2.5-7b",
        ready=READY,
        asked={"max_model_len": 40960},
    )


def dead(**end: object) -> EngineView:
    info = ExitInfo(at=time.time() - 250, **end)  # type: ignore[arg-type]
    return EngineView(name="tiny", state="failed", model="opt-125m", last_exit=info, started_at=info.at - 41, log="/l")


def test_a_row_of_ps() -> None:
    row = dict(zip(PS_HEADERS, ps_row(busy()), strict=True))
    assert row == {
        "NAME": "qwen",
        "STATE": "busy",
        "PID": "41873",
        "UP": "2h11m",
        "RUN": "38",
        "WAIT": "4",
        "KV%": "61",
        "TOK/S": "1,912",
        "STEP p50": "19.8ms",
        "MODEL": "qwen2.5-7b",
    }


def test_what_is_dead_has_no_figures_but_says_how_it_ended() -> None:
    row = ps_row(dead(signal="SIGKILL"))
    assert row[2:9] == ["-"] * 7
    assert row[9] == "opt-125m   (signal 9 KILL, 4m ago)"


def test_figures_that_cannot_be_known_are_dashes() -> None:
    row = ps_row(EngineView(name="v", state="idle", stats=Stats()))
    assert (row[6], row[8]) == ("-", "-")


def test_the_ready_block_says_when_weights_are_rounded() -> None:
    view = busy()
    view.asked = {**view.asked, "quantization": "int8"}
    assert "bfloat16 (int8 weights)" in ready_lines(view)[-1]


def test_the_ready_block() -> None:
    assert [" ".join(line.split()) for line in ready_lines(busy())] == [
        "max_model_len 32,768 (asked 40,960; cut to fit KV)",
        "kv cache 36,704 blocks × 16 = 587,264 tokens, 17.9 full-length requests",
        "limits 256 seqs, 8,192 batched tokens",
        "dtype bfloat16 tp=1 pp=1 dp=1",
    ]
    assert phase_line(PhaseInfo(name="load weights", began_s=0, took_s=11.42, detail="15.2 GiB")) == (
        "  ✔ load weights           11.4s   15.2 GiB"
    )


def test_a_start_fits_its_terminal() -> None:
    phase = PhaseInfo(
        name="handshake", began_s=0, took_s=0.1, last_took_s=0.1, detail="ipc:///run/user/1000/" + "x" * 90
    )
    line = phase_line(phase, 80)
    assert len(line) == 80 and line.endswith("…   (last 0.1s)")
    assert "x" * 50 in phase_line(phase)
    assert max(map(len, ready_lines(busy()))) <= 80


def test_the_page_of_a_dead_engine_is_a_post_mortem() -> None:
    page = "\n".join(status_lines(dead(code=1, cause="KV cache too small", phase="kv cache", evidence="/e")))
    for part in (
        "tiny  failed",
        "exit 1",
        "4m ago",
        "kv cache",
        "KV cache too small",
        "/e",
        "next:  enginectl logs tiny",
    ):
        assert part in page


def test_a_stall_gives_its_reason_and_the_next_commands() -> None:
    view = busy()
    view.state, view.reason = "stalled", "no turn of the loop for 7.2 s, process state T"
    page = "\n".join(status_lines(view))
    assert "process state T" in page
    assert "enginectl stacks qwen" in page


def test_a_failed_start_reads_as_in_the_manual() -> None:
    error = start_failed(dead(code=1, cause="KV cache for one request needs 4.26 GiB", phase="kv cache"))
    assert error.message == "engine 'tiny' failed in phase 'kv cache' after 41.0s (exit 1)"
    assert error.exit == 8
    assert "enginectl help E1203" in error.see


def test_rows_of_requests() -> None:
    waiting = RequestView(
        id="cmpl-77f-1",
        external_id="cmpl-77f",
        age_s=0.4,
        prompt_tokens=12288,
        max_tokens=512,
        blocks_needed=768,
        waits_for="kv full",
        client=1,
    )
    assert request_row(waiting) == [
        "cmpl-77f",
        "waiting",
        "0.4s",
        "12,288",
        "0/512",
        "(768)",
        "-",
        "-",
        "-",
        "1",
        "kv full",
    ]
    hog = RequestView(id="h", state="running", is_hog=True, note="holds 90% of the blocks", blocks=9)
    assert request_row(hog)[-1] == "hog: holds 90% of the blocks"
