"""At 80x24, what most people have: nothing cut in the middle, every figure with its name, sparks where they help."""

from __future__ import annotations

import pytest
from msgspec import structs

from enginectl.control import DrainProgress, ExitInfo, PhaseInfo, RequestView
from enginectl.control_explain import Explanation, Holder
from enginectl.top.render import render
from enginectl.top.snapshot import Snapshot
from enginectl.top.state import Ui
from tests.enginectl.top import samples


def picture(snapshot: Snapshot, ui: Ui | None = None, width: int = 80, height: int = 24) -> str:
    return "\n".join(render(snapshot, ui or Ui(), width, height, now=samples.NOW).plain())


def loaded() -> Snapshot:
    stats = samples.stats(16, 14)
    for name, value in (("ttft_p50_s", 2.9), ("ttft_p95_s", 3.14), ("tpot_p50_ms", 336.6), ("tpot_p95_ms", 447.4)):
        setattr(stats, name, value)
    return samples.snapshot(view=samples.view("saturated", stats=stats))


def panel_rows(shown: str) -> list[str]:
    lines = shown.splitlines()
    first = next(i for i, line in enumerate(lines) if "╭ process" in line)
    return lines[first + 1 : first + 5]


def test_latencies_keep_their_names_and_are_whole() -> None:
    shown = picture(loaded())
    assert "ttft p95 3.14s" in shown
    assert "tpot p95 447ms" in shown
    assert not any("…" in row for row in panel_rows(shown))


def test_queues_and_throughput_have_sparks() -> None:
    cells = [row.split("││") for row in panel_rows(picture(loaded()))]
    for row in cells[:2]:
        for panel in (row[1], row[3]):
            assert set(panel) & set("▂▃▄▅▆▇█"), panel


@pytest.mark.parametrize("running", [7, 256, 1024, 12345])
def test_a_figure_never_touches_its_name(running: int) -> None:
    shown = picture(samples.snapshot(view=samples.view(stats=samples.stats(running, running))))
    assert f" {running:,}" in shown


def test_a_table_that_could_not_be_had_says_why_whole() -> None:
    error = "requests: engine 'default' is stopping (aborting what runs), and its table is gone"
    assert f"W {error[:60]}" in picture(samples.snapshot(requests_error=error))


def test_a_long_detail_says_that_there_is_more_and_a_usual_one_is_whole() -> None:
    row = samples.requests(10)[9]
    holders = [Holder(id=f"cmpl-{n}", blocks=40, share=0.1, eta_s=30.0 + n) for n in range(3)]
    explained = Explanation(
        request=row, because="no blocks", position=3, expected_start_s=4.0, expected_start_steps=90, holders=holders
    )
    snapshot = samples.snapshot(requests=(row,), requests_total=1, explanation=explained)
    shown = picture(snapshot, Ui(view="detail", cursor=row.id))
    for word in ("place in the line", "starts in about", "cmpl-2", "time per token  -", "waits for"):
        assert word in shown
    assert "time per token  - ms" not in shown
    assert "more lines" not in shown
    longer = structs.replace(snapshot, explanation=structs.replace(explained, notes=["a word " * 40] * 3))
    assert "more lines: a taller screen" in picture(longer, Ui(view="detail", cursor=row.id))


def test_only_what_may_be_done_is_offered() -> None:
    assert "abort…" not in picture(samples.snapshot(), width=200)
    assert "a abort…" in picture(samples.snapshot(), Ui(allow_actions=True))


@pytest.mark.parametrize(
    ("sort", "invert", "arrow"), [("id", False, "▲"), ("id", True, "▼"), ("age", False, "▼"), ("out", True, "▲")]
)
def test_the_arrow_points_up_where_the_smallest_is_first(sort: str, invert: bool, arrow: str) -> None:
    assert f"sort: {sort} {arrow}" in picture(samples.snapshot(), Ui(sort=sort, invert=invert))


def test_a_path_in_a_notice_is_whole() -> None:
    path = "/home/somebody/" + "a-long-name/" * 8 + "top-qwen.jsonl"
    lines = [line.strip() for line in picture(samples.snapshot(), Ui(notice=f"saved to {path}")).splitlines()[-3:]]
    assert path in "".join(lines)


def test_figures_of_a_dead_engine_are_called_the_last() -> None:
    end = ExitInfo(signal="SIGKILL", at=samples.NOW, running=16, waiting=14)
    dead = samples.snapshot(view=samples.view("failed", stats=samples.stats(16, 14), last_exit=end))
    shown = picture(dead, width=100, height=40)
    for word in ("queues, last", "requests 42 last seen", "in flight: 16 running, 14 waiting"):
        assert word in shown
    assert "14W" not in shown
    alive = picture(samples.snapshot(), width=100, height=40)
    assert ", last" not in alive and "last seen" not in alive


def test_an_end_is_told_once() -> None:
    end = ExitInfo(code=0, requested=True, at=samples.NOW)
    shown = picture(samples.snapshot(view=samples.view("exited", reason="exit 0", last_exit=end)))
    assert "code 0" in shown and "reason: exit 0" not in shown


@pytest.mark.parametrize("tail", ["", "-" + "f" * 24])
def test_how_many_will_miss_is_never_cut_away(tail: str) -> None:
    late = [f"gen-{n:08x}{tail}-8a1f0945" for n in range(36)]
    drain = DrainProgress(began_s_ago=1, grace_s=10, running=36, will_miss=late, worst_id=late[0], worst_eta_s=77.0)
    rows = tuple(RequestView(id=name, external_id=name[:-9], age_s=1.0) for name in late)
    shown = picture(samples.snapshot(view=samples.view("draining", drain=drain), requests=rows))
    assert f"gen-00000000{tail}" in shown and " more" in shown
    assert f"slowest gen-00000000{tail} in 1m17s" in shown


def test_how_long_a_phase_took_last_is_never_cut_away() -> None:
    phase = PhaseInfo(name="handshake", began_s=0.0, took_s=0.2, last_took_s=0.2, detail="ipc:///tmp/" + "x" * 80)
    shown = picture(samples.snapshot(view=samples.view("starting", phases=[phase], stats=None), count=0))
    assert "ipc:///tmp/xx" in shown and "…   last time 0.20s" in shown
