"""The neutral driver on a real engine process that runs no model, and on commands that are no engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench import session
from bench.arms import ours
from bench.groups import GROUPS, step_figures
from bench.protocol import chosen, measure, neighbour
from bench.table import ROWS
from bench.wire import RunFailed
from tests.bench.rig import TINY
from tests.support.tiny_model import make_tiny_model

ENDLESS = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_steps_are_the_gaps_between_messages() -> None:
    found = step_figures([(1.0, 4), (1.010, 4), (1.020, 2), (1.050, 2)])
    assert found["steps"] == 3
    assert found["rows_per_step"] == 3
    assert found["step_p50_ms"] == pytest.approx(10)
    assert found["step_p99_per_p50"] == pytest.approx(3)


def test_one_message_is_no_step() -> None:
    with pytest.raises(RunFailed, match="not two steps"):
        step_figures([(1.0, 4)])


def test_groups_are_chosen_by_name_and_keep_their_order() -> None:
    assert chosen("c,a", ["a", "b", "c"]) == ["a", "c"]
    assert chosen(None, ["a", "b"]) == ["a", "b"]
    with pytest.raises(SystemExit, match="unknown: x; known: a, b"):
        chosen("x,a", ["a", "b"])


@pytest.mark.e2e
def test_every_row_gets_its_figure_and_nothing_is_left(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "m")
    arm = ours(str(tmp_path / "m"), ["--executor", "null"])
    found = measure(arm.command, arm.full_environment(os.environ), list(GROUPS), tmp_path / "log", load=TINY)
    assert {row.figure for row in ROWS} <= found.keys()
    assert all(isinstance(found[row.figure], float) and found[row.figure] > 0 for row in ROWS)  # type: ignore[operator]
    assert found["most_tokens_an_output"] == 1
    assert found["frontend_cores"].keys() == set(GROUPS)  # type: ignore[attr-defined]
    assert not processes_with(str(tmp_path / "m"))


@pytest.mark.thread
def test_who_says_nothing_is_ended_at_the_deadline(tmp_path: Path) -> None:
    mark = str(tmp_path)
    with pytest.raises(RunFailed, match="deadline of the run passed, waiting for HELLO"):
        measure([*ENDLESS, mark], os.environ, ["calls"], tmp_path / "log", deadline_s=0.3)
    assert not processes_with(mark)


@pytest.mark.thread
def test_who_ends_early_is_told_with_its_status(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="ended with status 3 before HELLO"):
        measure([sys.executable, "-c", "raise SystemExit(3)"], os.environ, ["calls"], tmp_path / "log")


@pytest.mark.thread
def test_a_neighbour_lives_as_long_as_it_is_wanted() -> None:
    with neighbour(True) as beside:
        assert beside is not None and beside.poll() is None
    assert beside.poll() is not None
    with neighbour(False) as nobody:
        assert nobody is None


def processes_with(mark: str) -> list[str]:
    """Command lines of living processes that name it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                line = (entry / "cmdline").read_text()
                alive = session.parse_stat((entry / "stat").read_text()).state not in "ZX"
            except OSError:
                continue
            if mark in line and alive:
                found.append(line)
    return found
