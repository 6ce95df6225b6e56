"""Frames at many sizes: nothing wider or taller than the screen, each part there or given up as documented."""

from __future__ import annotations

import pytest
from msgspec import structs
from rich.cells import cell_len

from enginectl.control import DrainProgress, EngineView, EventView, RequestView
from enginectl.control_explain import Explanation, Holder
from enginectl.control_stats import GpuInfo, Stats, StepStats
from enginectl.top.layout import shed
from enginectl.top.render import render
from enginectl.top.snapshot import Link, Snapshot
from enginectl.top.state import Dialog, Ui
from enginectl.top.styles import LABEL
from tests.enginectl.top import samples

SIZES = [(40, 10), (60, 14), (60, 24), (79, 18), (80, 24), (100, 17), (100, 32), (140, 50), (500, 200)]
VIEWS = [
    Ui(),
    Ui(view="help"),
    Ui(view="steps"),
    Ui(view="logs"),
    Ui(view="detail"),
    Ui(typing="wait"),
    Ui(held=3),
    Ui(dialog=Dialog("abort", "qwen", "cmpl-1")),
    *(Ui(view="panel", panel=n) for n in range(7)),
]
NASTY = Snapshot(
    ts=samples.NOW,
    seq=1,
    name="n" * 80,
    link=Link(state="lost", reason="r\x1b[2J" * 30, retry_in_s=2.0),
    view=EngineView(
        name="n" * 80,
        state="busy",
        model="模型" * 40,
        reason="理由" * 50,
        stats=Stats(
            running=10**9,
            waiting=10**9,
            kv_blocks=10**12,
            kv_used_blocks=10**12,
            kv_used_ratio=7.0,
            decode_tok_s=-5.0,
            step=StepStats(histogram=[10**9] * 11, recent_ms=[1e9] * 120),
        ),
    ),
    requests=(RequestView(id="日本" * 60, age_s=1e9, prompt_tokens=10**12, note="\n" * 9, is_hog=True),),
    events=(EventView(ts=1e9, seq=1, type="t" * 99, text="\t\x07" * 200),),
    engines=(),
)
SNAPSHOTS = {
    "busy": samples.snapshot(),
    "starting": samples.starting(),
    "dead": samples.dead(),
    "nasty": NASTY,
    "unseen": Snapshot(ts=samples.NOW, seq=1, name="qwen"),
    "empty": samples.snapshot("idle", 0),
    "no figures": samples.snapshot(view=EngineView(name="qwen", state="ready")),
    "thousand": samples.snapshot(count=1000),
}


def picture(snapshot: Snapshot, width: int, height: int | None, ui: Ui | None = None, **more: bool) -> list[str]:
    return render(snapshot, ui or Ui(), width, height, now=samples.NOW + 9, **more).plain()


def text(*args: object, **more: object) -> str:
    return "\n".join(picture(*args, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [*SIZES, (1, 1), (20, 5), (39, 50), (100, 9)])
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_no_frame_is_larger_than_its_screen(name: str, size: tuple[int, int]) -> None:
    width, height = size
    for ui in VIEWS:
        lines = picture(SNAPSHOTS[name], width, height, ui)
        assert len(lines) == height
        assert max(cell_len(line) for line in lines) <= width
        assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (100, 32), (140, 50)])
def test_parts_are_there_or_given_up_in_order(width: int, height: int) -> None:
    shown = text(samples.snapshot(), width, height)
    marks = {
        "events": "╭ events",
        "split": "exec",
        "histogram": "15-20",
        "process": "╭ process",
        "throughput": "╭ throughput",
        "sparklines": "▇",
    }
    for part, sign in marks.items():
        assert (sign in shown) == (part not in shed(width, height)), part
    for title in ("╭ queues", "╭ kv cache", "╭ step timing", "╭ requests"):
        assert title in shown


@pytest.mark.parametrize("height", range(10, 26))
def test_the_table_survives_every_height(height: int) -> None:
    lines = picture(samples.snapshot(), 100, height)
    assert sum("cmpl-0" in line for line in lines) >= 2
    marks = {
        "events": "╭ events",
        "split": "exec",
        "histogram": "15-20",
        "process": "╭ process",
        "throughput": "╭ throughput",
        "sparklines": "▇",
    }
    for part, sign in marks.items():
        assert any(sign in line for line in lines) == (part not in shed(100, height)), part


def test_below_the_least_size_there_is_one_line() -> None:
    for width, height in ((39, 30), (100, 9), (30, 8)):
        lines = [line for line in picture(samples.snapshot(), width, height) if line]
        assert len(lines) == 1
        assert lines[0].startswith("qwen busy r38 w4 kv61%")


def test_all_figures_of_the_drawing_are_there() -> None:
    shown = text(samples.snapshot(), 120, 40)
    for word in (
        "qwen · busy · up 2h11m · 1.0s · observer 38µs/step",
        "[read-only]",
        "engine 41873",
        "cpu 104%",
        "running   38",
        "waiting    4W",
        "22,389 / 36,704",
        "61%",
        "prefix hit 47%",
        "free p5 18,352",
        "decode  1,912",
        "prefill  6.1k",
        "ttft p50 .21 p95 .74s",
        "tpot p50 19.8 p95 24.0ms",
        "last 60s, 2,944 steps",
        "now 19.6",
        "p50 19.8",
        "p95 24.1",
        "p99 61.0",
        "max 88.2",
        "schedule 0.6",
        "execute 17.9",
        "sample 0.7",
        "update 0.4",
        "idle 0.2",
        "slow 2: step 88197 prefill 8.2k",
        "superv 41869",
        "rss 21MB",
        "requests 42 · sort: hog ▼ · filter: -",
        "slow-step 88197",
    ):
        assert word in shown, word


def test_warnings_are_lettered() -> None:
    full = samples.stats()
    full.kv_used_ratio = 0.97
    assert "97%!" in text(samples.snapshot(view=samples.view(stats=full)), 100, 32)
    full.kv_used_ratio = 0.85
    assert "85%W" in text(samples.snapshot(view=samples.view(stats=full)), 100, 32)
    assert "waiting    4!" in text(samples.snapshot(view=samples.view(stats=samples.stats(running=0))), 100, 32)
    elsewhere = Ui(cursor="cmpl-001-0-8a1f0945")
    assert any(line.startswith("│ ! cmpl-000") for line in picture(samples.snapshot(count=3), 100, 32, elsewhere))


def test_rates_are_never_negative() -> None:
    shown = samples.stats()
    shown.decode_tok_s = shown.prefill_tok_s = shown.requests_in_s = shown.preempted_per_min = -50.0
    for width in (80, 120):
        assert "-5" not in text(samples.snapshot(view=samples.view(stats=shown)), width, 32).replace("20-", "")


def test_the_cursor_is_on_the_screen() -> None:
    snapshot = samples.snapshot(count=500)
    for target in ("cmpl-000-0-8a1f0945", "cmpl-0fa-0-8a1f0945", "cmpl-1f3-0-8a1f0945"):
        marked = [line for line in picture(snapshot, 100, 32, Ui(cursor=target)) if line.startswith("│ › ")]
        assert len(marked) == 1
        assert target[:8] in marked[0]


def test_a_detail_says_on_whom_it_waits_and_until_when() -> None:
    row = samples.requests(42)[-1]
    holder = Holder(id="hog-1", external_id="hog", blocks=300, share=0.75, eta_s=12.0)
    found = Explanation(
        request=row, because="20 KV blocks are needed, 3 are free", position=1, holders=[holder],
        expected_start_s=12.0, expected_start_steps=600,
    )  # fmt: skip
    ui = Ui(view="detail", cursor=row.id)
    row.state = "waiting"
    shown = samples.snapshot(requests=(row,), explanation=found)
    page = text(shown, 100, 40, ui)
    assert "why  20 KV blocks are needed, 3 are free" in page
    assert "hog  300 blocks (75%)" in page
    assert "600 steps" in page
    other = samples.requests(42)[0]
    assert "held by" not in text(samples.snapshot(explanation=found), 100, 40, Ui(view="detail", cursor=other.id))


def test_a_detail_of_a_request_that_ended_says_so() -> None:
    shown = text(samples.snapshot(), 100, 32, Ui(view="detail", cursor="cmpl-gone"))
    assert "cmpl-gone is no longer in flight" in shown
    assert "cmpl-029" not in shown
    assert "blocks held  49" in text(samples.snapshot(), 100, 32, Ui(view="detail", cursor="cmpl-029-0-8a1f0945"))


def test_only_rows_on_the_screen_become_text(monkeypatch: pytest.MonkeyPatch) -> None:
    from enginectl.top import table

    drawn = []
    real = table.row_line
    monkeypatch.setattr(table, "row_line", lambda row, *rest: drawn.append(row) or real(row, *rest))
    picture(samples.snapshot(count=1000), 100, 32)
    assert 0 < len(drawn) < 20


def test_a_lost_link_keeps_the_last_data_dimmed() -> None:
    link = Link(state="lost", age_s=12.0, reason="no answer", retry_in_s=2.0)
    frame = render(samples.snapshot(link=link), Ui(), 100, 32, now=samples.NOW)
    shown = "\n".join(frame.plain())
    for word in ("unreachable: no answer", "next try in 2.00s", "data is 12s old", "cmpl-029"):
        assert word in shown
    body = frame.lines[2:-1]
    assert {style for line in body for part, style in line if part.strip()} == {LABEL}


def test_stale_data_says_so() -> None:
    assert "stale 4s" in text(samples.snapshot(link=Link(state="stale", age_s=4.0)), 100, 32)


def test_a_dead_engine_shows_how_it_ended() -> None:
    shown = text(samples.dead(), 100, 32)
    for word in ("engine exited", "signal SIGKILL", "killed from outside", "/state/evidence/1", "cmpl-029"):
        assert word in shown


def test_starting_shows_the_phases() -> None:
    shown = text(samples.starting(), 100, 32)
    for word in (
        "✔ handshake",
        "✔ load weights",
        "15.2 GiB in 8 shards",
        "warm-up",
        "last time 28.0s",
        "9.40s",
        "last start took 61.0s",
    ):
        assert word in shown


def test_draining_shows_what_is_left() -> None:
    drain = DrainProgress(
        began_s_ago=9,
        grace_s=120,
        running=3,
        tokens_left=14200,
        eta_s=8.0,
        worst_id="cmpl-91c",
        worst_eta_s=52.0,
        will_miss=["cmpl-91c"],
    )
    shown = text(samples.snapshot(view=samples.view("draining", drain=drain)), 140, 32)
    for word in (
        "draining 9s of 2m00s",
        "tokens 14,200",
        "all at this rate in 8s",
        "slowest cmpl-91c in 52s",
        "will miss: cmpl-91c",
    ):
        assert word in shown


def test_held_states_say_why() -> None:
    shown = text(samples.snapshot(view=samples.view("paused", reason="by uid 1000, mode keep")), 100, 32)
    assert "paused: by uid 1000, mode keep" in shown


def test_a_frozen_picture_says_its_age() -> None:
    assert "frozen 9s ago" in text(samples.snapshot(), 100, 32, Ui(held=5))


def test_the_dialog_names_engine_and_object() -> None:
    shown = text(samples.snapshot(), 80, 24, Ui(allow_actions=True, dialog=Dialog("abort", "qwen", "cmpl-91c")))
    for word in ("abort · engine qwen", "Abort request cmpl-91c?", ">Cancel<"):
        assert word in shown


@pytest.mark.parametrize("size", [(40, 10), (30, 8), (60, 12), (100, 32)])
@pytest.mark.parametrize("target", ["cmpl-91c", "x" * 400])
def test_no_dialog_is_answered_unseen(size: tuple[int, int], target: str) -> None:
    for choice, word in ((0, ">Cancel<"), (1, ">Abort<")):
        ui = Ui(allow_actions=True, dialog=Dialog("abort", "qwen", target, choice))
        shown = text(samples.snapshot(), *size, ui)
        assert word in shown
        assert target[:6] in shown


def test_ascii_frames_are_ascii() -> None:
    for ui in VIEWS:
        for snapshot in SNAPSHOTS.values():
            lines = picture(snapshot, 100, 32, ui, ascii_only=True)
            assert all(line.isascii() for line in lines)
            assert max(map(len, lines)) <= 100


def test_paper_has_every_panel_and_no_cursor() -> None:
    lines = picture(samples.snapshot(count=500), 100, None)
    for title in ("╭ process", "╭ queues", "╭ kv cache", "╭ throughput", "╭ step timing", "╭ requests", "╭ events"):
        assert any(title in line for line in lines)
    assert not any("›" in line for line in lines)
    assert "… 461 below" in "\n".join(lines)


def test_the_same_values_give_the_same_frame() -> None:
    one, two = (render(samples.snapshot(), Ui(), 100, 32, now=samples.NOW) for _ in range(2))
    assert one == two


def test_gpus_take_the_place_of_memory_where_there_are_some() -> None:
    one = GpuInfo(index=0, used_bytes=71 << 30, total_bytes=80 << 30, busy_ratio=0.92)
    shown = text(samples.snapshot(view=samples.view(gpus=[one])), 100, 32)
    assert "gpu0 92% 71.0/80.0GiB" in shown
    assert "mem 3.0GiB" not in shown and "mem 3.0GiB" in text(samples.snapshot(), 100, 32)
    second = GpuInfo(index=1, used_bytes=80 << 30, total_bytes=80 << 30)
    both = samples.snapshot(view=samples.view(gpus=[one, second]))
    assert "2 gpus 92% 151.0/160.0GiB" in text(both, 140, 50)
    assert "gpu0 92% 71/80G" in text(samples.snapshot(view=samples.view(gpus=[one])), 80, 24)
    page = text(both, 100, 32, Ui(view="panel", panel=0))
    assert "gpu1 - 80.0/80.0GiBW" in page and "memory 3.0GiB" in page


def test_a_quiet_engine_says_what_takes_most_and_an_old_one_no_observer() -> None:
    quiet = samples.stats()
    quiet.step.slow, quiet.step.observer_us, quiet.step.idle_ms = 0, None, None
    shown = text(samples.snapshot(view=samples.view(stats=quiet)), 100, 32)
    assert "idle -" in shown and "mostly execute" in shown
    assert "observer" not in shown and "slow 2" not in shown


def test_the_step_table_has_idle_and_the_slow_steps() -> None:
    page = text(samples.snapshot(), 100, 32, Ui(view="steps"))
    assert "idle             0.2 ms" in page and "slow 2: step 88197 prefill 8.2k" in page


def test_a_replay_says_where_it_stands_and_its_keys() -> None:
    shown = text(samples.snapshot(), 100, 32, Ui(is_replay=True, held=5, place=(3, 240)))
    assert "replay 3 of 240 · " in shown and "]  next" not in shown
    assert "] next  [ back  } { by ten  L end" in shown
    assert "frozen" not in shown


def test_while_clients_wait_for_the_next_engine_they_are_listed() -> None:
    held = samples.starting()
    assert held.view is not None
    held.view.held, held.view.held_s = 8, 6.2
    rows = samples.requests(8)
    for row in rows:
        row.state, row.waits_for = "held", "the engine is replaced; its client waits"
    shown = text(structs.replace(held, requests=rows, requests_total=8), 100, 32)
    assert "W holding 8 requests for 6s: their clients wait" in shown
    assert "load weights" in shown and "cmpl-003" in shown and "held" in shown


def test_no_panel_line_is_cut_while_requests_are_preempted() -> None:
    busy = samples.stats()
    busy.preempted_per_min, busy.requests_in_s = 27.0, 123.4
    for width, height in ((40, 20), (60, 20), (80, 24), (100, 32)):
        lines = picture(samples.snapshot(view=samples.view(stats=busy)), width, height)
        at = next(n for n, line in enumerate(lines) if "requests 42" in line)
        panels_only, rows = lines[:at], [line for line in lines[at + 1 :] if "cmpl-" in line]
        assert not [line for line in (*panels_only, *rows) if "…" in line]
        assert any("slow 2" in line for line in panels_only) == (width > 60)


def test_a_long_reason_is_wrapped_in_the_detail() -> None:
    row = samples.requests(1)[0]
    why = "5 ahead of it; the first of them waits: 17 KV blocks are needed, 12 of 400 are free, and no more come soon"
    shown = text(
        samples.snapshot(requests=(row,), explanation=Explanation(request=row, because=why)), 80, 40, Ui(view="detail")
    )
    assert "and no more come soon" in shown
    assert "hog  ! 61% of the KV cache" in shown


@pytest.mark.parametrize("width", [80, 100, 200])
def test_who_will_miss_the_deadline_is_never_cut_away(width: int) -> None:
    drain = DrainProgress(
        began_s_ago=1, grace_s=4, running=8, tokens_left=4436, eta_s=23, worst_id="gen-604f20e8", worst_eta_s=54.0,
        will_miss=["gen-604f20e8", "gen-3d983b28", "gen-74b4cc88", "gen-b0031210"],
    )  # fmt: skip
    lines = picture(samples.snapshot(view=samples.view("draining", drain=drain)), width, 24)
    assert any("W will miss: gen-604f20e8, gen-3d983b28, gen-74b4cc88 and 1 more" in line for line in lines)
    assert "slowest gen-604f20e8 in 54s" in "\n".join(lines)
