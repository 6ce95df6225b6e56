from __future__ import annotations

from pathlib import Path

import pytest

from enginectl.bundle import write_bundle
from enginectl.control import EventView
from enginectl.control_flight import FlightHead, FlightStep
from enginectl.errors import UsageError
from enginectl.record import json_bytes
from enginectl.supervisor.flight import to_json_lines
from enginectl.top.flight import MAX_FRAMES, from_lines
from enginectl.top.render import render
from enginectl.top.state import Ui
from enginectl.top.stream import load

HEAD = FlightHead(name="qwen", kv_blocks=100, max_num_seqs=8, wall_offset_s=1_700_000_000.0)


def steps(count: int, every_s: float = 0.02) -> list[FlightStep]:
    return [
        FlightStep(
            step=n + 1, t=50 + n * every_s, tokens=4, running=4, waiting=2, free_blocks=100 - n % 90, schedule_ms=0.5,
            execute_ms=18.0, sample_ms=1.0, update_ms=0.5,
        )
        for n in range(count)
    ]  # fmt: skip


def test_a_record_becomes_snapshots_of_live_figures(tmp_path: Path) -> None:
    path = tmp_path / "flight.jsonl"
    path.write_bytes(to_json_lines(HEAD, steps(1000)))
    found = load(path)
    assert 10 < len(found) <= MAX_FRAMES + 1
    stats = found[-1].view.stats if found[-1].view else None
    assert stats is not None
    assert stats.step_counter == 1000
    assert stats.step.p50_ms == 20.0
    assert 150 < stats.decode_tok_s < 250
    assert stats.kv_used_blocks == 9
    assert found[-1].ts == pytest.approx(1_700_000_000 + 50 + 999 * 0.02)
    text = "\n".join(render(found[-1], Ui(), 100, None, now=found[-1].ts).plain())
    assert "qwen" in text and "waiting" in text


def test_a_torn_last_line_is_left_out() -> None:
    lines = to_json_lines(HEAD, steps(10)).splitlines()
    assert from_lines([*lines[:-1], lines[-1][:20]])[-1].seq == 9
    assert from_lines([lines[0]]) == []
    assert from_lines([]) == []


def test_a_bundle_has_its_own_record_first_and_its_events(tmp_path: Path) -> None:
    event = EventView(ts=1_700_000_050.5, seq=1, type="stalled", text="its loop has not turned")
    files = {
        "flight.jsonl": to_json_lines(HEAD, steps(100)),
        "evidence/20260101T000000-died/flight.jsonl": to_json_lines(HEAD, steps(5)),
        "events.json": json_bytes([event]),
    }
    found = load(write_bundle(tmp_path / "b.tar.gz", files))
    assert found[-1].view is not None and found[-1].view.stats is not None
    assert found[-1].view.stats.step_counter == 100
    assert [one.type for one in found[-1].events] == ["stalled"]
    assert not found[0].events


def test_events_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    for number, events in enumerate(
        [b"junk", b"[" * 100_000, b'[{"ts":1,"seq":1,"type":"a","text":"b","x":' + b"[" * 100_000]
    ):
        files = {"flight.jsonl": to_json_lines(HEAD, steps(10)), "events.json": events}
        found = load(write_bundle(tmp_path / f"{number}.tar.gz", files))
        assert found and not found[-1].events


def test_what_holds_no_record_is_refused(tmp_path: Path) -> None:
    for name, data in (("a", b"\x1f\x8bjunk"), ("b", b"junk\n"), ("c", b"")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UsageError):
            load(tmp_path / name)
    with pytest.raises(UsageError, match=r"no flight\.jsonl"):
        load(write_bundle(tmp_path / "d.tar.gz", {"x.txt": b"x"}))


def test_a_bundle_is_for_its_owner_and_never_replaces_a_file(tmp_path: Path) -> None:
    path = write_bundle(tmp_path / "b.tar.gz", {"x.txt": b"x"})
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(UsageError, match="exists"):
        write_bundle(tmp_path / "b.tar.gz", {})
