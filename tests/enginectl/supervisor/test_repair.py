"""What cannot be repaired is said once, and repaired when it can be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from enginectl.claim import Claim
from enginectl.record import EngineLock, Record, write_json
from enginectl.rundir import make_runtime_dir, make_state_dir, save_settings
from enginectl.settings import EngineSettings
from enginectl.supervisor.daemon import Daemon
from enginectl.supervisor.loop import Loop
from enginectl.supervisor.repair import Possessions


class Told(list[str]):
    def add(self, kind: str, text: str) -> None:
        self.append(f"{kind}: {text}")


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """As much of one as is looked at: its directories are real."""
    monkeypatch.setenv("ENGINECTL_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("ENGINECTL_RUNTIME_DIR", str(tmp_path / "r"))
    paths = make_state_dir("t")
    settings = EngineSettings(name="t", config={"model": "/m"})
    save_settings(settings)
    base = make_runtime_dir(tmp_path / "r" / "t", paths.state)
    log = SimpleNamespace(check=lambda: None)

    def save_record(*, ended: bool) -> None:
        write_json(paths.record, Record(name="t", ended=ended))

    save_record(ended=False)
    return SimpleNamespace(
        settings=settings, paths=paths, base=base, loop=Loop(), events=Told(), log=log, engine_log=log, notice="",
        server=SimpleNamespace(check=list), has_own_record=paths.record.is_file, save_record=save_record, is_over=False,
    )  # fmt: skip


def possessions(daemon: SimpleNamespace) -> Possessions:
    lock, claim = EngineLock(daemon.paths.lock), Claim(daemon.paths.state)
    lock.take()
    claim.take()
    return Possessions(cast(Daemon, daemon), lock, claim)


def test_nothing_is_done_while_all_is_there(daemon: SimpleNamespace) -> None:
    mine = possessions(daemon)
    mine.look()
    assert daemon.events == []


def test_a_file_in_the_place_of_its_directory_is_said_once_until_it_is_gone(daemon: SimpleNamespace) -> None:
    mine = possessions(daemon)
    state = daemon.paths.state
    state.rename(state.with_name("was"))
    state.write_text("not a directory")
    for _ in range(3):
        mine.look()
    assert len(daemon.events) == 1 and daemon.events[0].startswith("state-dir: cannot be used")
    state.unlink()
    mine.look()
    assert {path.name for path in state.iterdir()} == {"lock", "record.json", "settings.json"}
    assert "state-dir: was removed; written again" in daemon.events


def test_a_lock_that_somebody_else_took_meanwhile_is_said_and_taken_when_it_is_free(daemon: SimpleNamespace) -> None:
    mine = possessions(daemon)
    daemon.paths.lock.unlink()
    other = EngineLock(daemon.paths.lock)
    other.take()
    mine.look()
    mine.look()
    assert [text for text in daemon.events if "has a supervisor already" in text] == daemon.events
    other.release()
    mine.look()
    assert daemon.events[1:] == ["lock: was removed; taken again"]
