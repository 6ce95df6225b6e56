"""Files for completion: few, small, young, and gone with their supervisor."""

from __future__ import annotations

import os
from pathlib import Path

from engine.messages import EngineCoreRequest, SamplingParams
from enginectl.supervisor.hints import YOUNGEST, Hints
from enginectl.supervisor.inflight import InflightTable


def table(*names: str) -> InflightTable:
    made = InflightTable()
    for name in names:
        made.add(EngineCoreRequest(name, [1], sampling_params=SamplingParams(max_tokens=9)))
    return made


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_ids_are_those_that_users_know_the_youngest_200(tmp_path: Path) -> None:
    hints = Hints(tmp_path)
    hints.update(10.0, table("cmpl-X-0-8a1f0945", "1_cmpl-X-0-8a1f0945", "plain", "two\nlines"), None)
    assert lines(tmp_path / "requests") == ["cmpl-X", "plain"]
    hints.update(20.0, table(*(f"r{i}" for i in range(1000))), None)
    assert lines(tmp_path / "requests") == [f"r{i}" for i in range(1000 - YOUNGEST, 1000)]


def test_they_are_written_at_most_once_a_second_and_only_when_they_changed(tmp_path: Path) -> None:
    hints = Hints(tmp_path)
    hints.update(10.0, table("a"), None)
    first = os.stat(tmp_path / "requests").st_ino
    hints.update(10.9, table("a", "b"), None)
    assert lines(tmp_path / "requests") == ["a"]
    hints.update(11.9, table("a"), None)
    assert os.stat(tmp_path / "requests").st_ino == first
    hints.update(13.0, table("a", "b"), None)
    assert lines(tmp_path / "requests") == ["a", "b"]


def test_a_removed_file_comes_back_and_a_directory_that_is_gone_is_no_failure(tmp_path: Path) -> None:
    hints = Hints(tmp_path)
    hints.update(10.0, table("a"), None)
    (tmp_path / "requests").unlink()
    hints.update(12.0, table("a"), None)
    assert lines(tmp_path / "requests") == ["a"]
    gone = Hints(tmp_path / "nowhere")
    gone.update(10.0, table("a"), None)
    hints.remove()
    gone.remove()
    assert list(tmp_path.iterdir()) == []
