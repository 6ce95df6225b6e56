"""Directories of evidence: one for each time, the oldest go."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from enginectl.supervisor.evidence import KEEP, save_files


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three looks at it are one millisecond."""
    looks = itertools.count()
    monkeypatch.setattr(time, "time_ns", lambda: 1_767_225_599_998_000_000 + next(looks) // 3 * 1_000_000)


def test_two_of_one_moment_keep_their_files_apart(tmp_path: Path) -> None:
    first, second = (Path(save_files(tmp_path / "e", "dump", {"a": data})) for data in (b"1", b"2"))
    assert first != second and first.name.endswith("-dump") and second.name.endswith("-dump")
    assert ((first / "a").read_bytes(), (second / "a").read_bytes()) == (b"1", b"2")


def test_of_many_of_one_moment_the_youngest_stay(tmp_path: Path) -> None:
    saved = [save_files(tmp_path, "dump", {"a": b""}) for _ in range(KEEP + 2)]
    assert sorted(map(str, tmp_path.iterdir())) == saved[2:]
    assert Path(saved[-1]).name == "20260101T000000.009-dump"


def test_where_nothing_can_be_written_it_costs_the_evidence_only(tmp_path: Path) -> None:
    (tmp_path / "e").touch()
    assert save_files(tmp_path / "e", "dump", {"a": b""}) == ""
