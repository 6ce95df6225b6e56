"""Log files stay small, and losing them costs lines only."""

from __future__ import annotations

import os
from pathlib import Path

from enginectl.supervisor.cause import first_cause
from enginectl.supervisor.child import StatusLine
from enginectl.supervisor.logs import RotatingFile, last_lines
from enginectl.supervisor.phases import StartTracker


def test_rotation_keeps_the_youngest_files(tmp_path: Path) -> None:
    log = RotatingFile(tmp_path / "x.log", max_bytes=100, keep=3)
    for number in range(100):
        log.write(b"line %05d\n" % number)
    log.close()
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["x.log", "x.log.1", "x.log.2"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 300
    assert last_lines(tmp_path / "x.log", 1) == ["line 00099"]


def test_a_lost_directory_loses_lines_and_comes_back(tmp_path: Path) -> None:
    where = tmp_path / "d"
    log = RotatingFile(where / "x.log")
    log.write(b"lost\n")
    assert log.lost_bytes == 5
    where.mkdir()
    log.reopen()
    log.write(b"kept\n")
    log.close()
    assert (where / "x.log").read_bytes() == b"kept\n"
    assert last_lines(where / "missing", 5) == []


def test_a_file_that_was_moved_is_made_anew(tmp_path: Path) -> None:
    log = RotatingFile(tmp_path / "x.log")
    os.rename(tmp_path / "x.log", tmp_path / "moved")
    log.reopen()
    log.write(b"new\n")
    log.close()
    assert (tmp_path / "x.log").read_bytes() == b"new\n"


def test_the_cause_is_the_engines_own_word_then_the_logs_last_error() -> None:
    log = ["INFO fine", "Traceback (most recent call last):", "  File x", "engine.errors.ModelError: no shard", "bye"]
    assert first_cause("ModelError: said", log, "exit 1") == "ModelError: said"
    assert first_cause("", log, "exit 1") == "engine.errors.ModelError: no shard"
    assert first_cause("", ["hello", "world"], "exit 3") == "exit 3; its last words: world"
    assert "kill -9" in first_cause("", ["hello"], "signal 9 KILL")
    assert first_cause("", [], "exit 1")


def test_phases_follow_the_status_lines() -> None:
    tracker = StartTracker()
    assert tracker.current == "spawn"
    for phase, event, detail in (
        ("handshake", "begin", ""), ("handshake", "end", ""), ("load weights", "begin", ""),
        ("load weights", "progress", "1 of 2 shards"),
    ):  # fmt: skip
        tracker.on_line(StatusLine(phase=phase, event=event, detail=detail))
    assert tracker.current == "load weights" and tracker.phases[-1].detail == "1 of 2 shards"
    assert [phase.took_s is not None for phase in tracker.phases] == [True, True, False]
    tracker.on_line(StatusLine(phase="load weights", event="failed", error="ModelError: broken"))
    assert tracker.error == "ModelError: broken" and tracker.current == "load weights"
