"""What the loop does with keys and news, without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginectl.top.app import App
from enginectl.top.poll import Poller
from enginectl.top.session import HISTORY, Session
from enginectl.top.state import Ui
from enginectl.top.stream import load
from tests.enginectl.top import samples
from tests.enginectl.top.peer import Peer
from tests.support.wait import wait_until


def app_of(**ui: object) -> App:
    return App(None, Session(), Ui(**ui), name="qwen")  # type: ignore[arg-type]


def test_before_the_first_snapshot_there_is_a_picture() -> None:
    assert "connecting" in "\n".join(app_of().frame(100, 32).plain())


def test_news_are_shown_and_those_of_another_engine_are_not() -> None:
    app = app_of()
    app.post(samples.snapshot(seq=1))
    app.post(samples.snapshot(seq=2, name="tiny"))
    app.post("a word")
    app.take_news()
    assert app.session.seqs == [1]
    assert app.ui.notice == "a word"


def test_a_frozen_picture_stays_while_data_is_recorded() -> None:
    app = app_of()
    for seq in (1, 2):
        app.post(samples.snapshot(seq=seq))
    app.take_news()
    app.handle(["p"])
    app.post(samples.snapshot(seq=3))
    app.take_news()
    assert app.shown().seq == 2
    assert app.session.seqs == [1, 2, 3]
    app.handle(["["])
    assert app.shown().seq == 1
    app.handle(["L"])
    assert app.shown().seq == 3


def test_a_frozen_picture_outlives_the_history() -> None:
    app = app_of()
    app.post(samples.snapshot(seq=1, count=0))
    app.take_news()
    app.handle(["p"])
    for seq in range(2, HISTORY + 20):
        app.post(samples.snapshot(seq=seq, count=0))
    app.take_news()
    assert app.shown().seq == 1
    app.handle(["p"])
    assert app.shown().seq == HISTORY + 19


def test_w_writes_what_a_replay_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = app_of()
    app.post(samples.snapshot())
    app.take_news()
    app.handle(["w"])
    assert app.ui.notice.startswith("saved to ")
    [path] = tmp_path.iterdir()
    assert load(path)[0].view == samples.snapshot().view


def test_a_directory_that_cannot_be_written_is_a_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    app = app_of()
    app.post(samples.snapshot(name="no/such/place"))
    app.name = "no/such/place"
    app.take_news()
    app.handle(["w"])
    assert app.ui.notice.startswith("! cannot write")


def test_effects_of_a_replay_touch_nothing() -> None:
    app = app_of(allow_actions=True)
    app.session.add(samples.snapshot())
    app.handle(["a", "right", "enter"])
    assert app.ui.notice == "not in a replay"


def test_quit_and_suspend_are_left_to_the_loop() -> None:
    assert app_of().handle(["q"]).kind == "quit"  # type: ignore[union-attr]
    assert app_of().handle(["j", "ctrl-z", "q"]).kind == "suspend"  # type: ignore[union-attr]


def test_abort_reaches_the_supervisor_and_is_reported(peer: Peer) -> None:
    app = app_of(allow_actions=True)
    app.poller = Poller("qwen", app.post)
    app.session.add(app.poller.look())
    target = app.session.latest.requests[0].id  # type: ignore[union-attr]
    app.handle(["a", "right", "enter"])
    assert app.ui.notice == "abort ..."
    wait_until(lambda: app.take_news() or app.ui.notice != "abort ...", what="the outcome")
    assert app.ui.notice == f"{target}: aborted"
    assert [args["ids"] for verb, args in peer.asked if verb == "abort"] == [[target]]
    app.poller._seen.drop()
