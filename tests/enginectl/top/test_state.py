"""The keyboard as a pure state machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginectl.top.state import ACTIONS, INTERVALS_S, PANELS, Effect, Scene, Ui, cursor_index, press, rows_of
from enginectl.top.table import SORTS
from tests.enginectl.top import samples

SCENE = Scene(samples.snapshot(), history=(1, 2, 3, 4, 5))


def keys(ui: Ui, *names: str, scene: Scene = SCENE) -> tuple[Ui, Effect | None]:
    effect = None
    for name in names:
        ui, effect = press(ui, name, scene)
    return ui, effect


def chosen(ui: Ui) -> str:
    rows = rows_of(ui, SCENE.shown)
    return rows[cursor_index(ui, rows)].id


@pytest.mark.parametrize("key", ["q", "ctrl-c"])
def test_quit(key: str) -> None:
    assert keys(Ui(), key)[1] == Effect("quit")


def test_ctrl_c_quits_from_everywhere() -> None:
    for before in (["/", "x"], ["?"], ["t"], ["a"]):
        assert keys(Ui(allow_actions=True), *before, "ctrl-c")[1] == Effect("quit")


def test_unknown_keys_change_nothing() -> None:
    assert keys(Ui(), "Z", "é", "delete") == (Ui(), None)


def test_the_cursor_moves_and_stays_within() -> None:
    ids = [row.id for row in rows_of(Ui(), SCENE.shown)]
    assert chosen(Ui()) == ids[0]
    assert chosen(keys(Ui(), "j", "down")[0]) == ids[2]
    assert chosen(keys(Ui(), "k")[0]) == ids[0]
    assert chosen(keys(Ui(), "G")[0]) == ids[-1]
    assert chosen(keys(Ui(), "G", "j")[0]) == ids[-1]
    assert chosen(keys(Ui(), "G", "g")[0]) == ids[0]
    assert chosen(keys(Ui(), "pagedown")[0]) == ids[10]
    assert chosen(keys(Ui(), "G", "n")[0]) == ids[0]


def test_the_cursor_stays_on_its_request_when_the_order_changes() -> None:
    ui, _ = keys(Ui(), "j", "j", "j")
    assert chosen(keys(ui, "S")[0]) == ui.cursor
    assert chosen(keys(ui, "s", "s")[0]) == ui.cursor


def test_the_cursor_stays_in_its_row_when_the_request_is_gone() -> None:
    ui, _ = keys(Ui(), "j", "j")
    left = [row for row in rows_of(ui, SCENE.shown) if row.id != ui.cursor]
    assert cursor_index(ui, left) == 2
    assert cursor_index(ui, []) == 0


def test_sorting() -> None:
    assert keys(Ui(), *["s"] * len(SORTS))[0].sort == Ui().sort
    assert keys(Ui(), "s", "<")[0].sort == Ui().sort
    assert keys(Ui(), ">")[0].sort == keys(Ui(), "s")[0].sort
    assert keys(Ui(), "S")[0].invert


def test_the_filter_is_typed_kept_and_cleared() -> None:
    typing, _ = keys(Ui(), "/", "q", "p", "space", "x", "backspace", "backspace")
    assert typing.typing == "qp"
    assert keys(typing, "enter")[0].filter == "qp"
    assert keys(typing, "enter", "esc")[0].filter == ""
    assert keys(typing, "esc")[0].filter == ""
    assert keys(typing, "up", "tab")[0].typing == "qp"


def test_what_is_typed_filters_at_once() -> None:
    assert len(rows_of(keys(Ui(), "/", *"waiting")[0], SCENE.shown)) == 4


def test_freeze_and_history() -> None:
    frozen, _ = keys(Ui(), "p")
    assert frozen.held == 5
    assert keys(frozen, "p")[0].held is None
    assert keys(frozen, "space")[0].held is None
    assert keys(Ui(), "[")[0].held == 4
    at_three = Scene(samples.snapshot(seq=3), SCENE.history)
    assert keys(Ui(held=3), "[", scene=at_three)[0].held == 2
    assert keys(Ui(held=3), "]", scene=at_three)[0].held == 4
    assert keys(Ui(held=5), "]")[0].held is None
    assert keys(Ui(held=1), "[", scene=Scene(samples.snapshot(seq=1), SCENE.history))[0].held == 1
    assert keys(Ui(held=3), "L")[0].held is None
    assert keys(Ui(), "[", scene=Scene(samples.snapshot()))[0].held is None


@pytest.mark.parametrize(("key", "view"), [("t", "steps"), ("l", "logs"), ("enter", "detail"), ("e", "panel")])
def test_views_open_and_close(key: str, view: str) -> None:
    opened, _ = keys(Ui(), key)
    assert opened.view == view
    assert keys(opened, key)[0].view == "main"
    assert keys(opened, "esc")[0].view == "main"


def test_help_has_two_pages() -> None:
    assert [keys(Ui(), *["?"] * n)[0].view for n in range(4)] == ["main", "help", "figures", "main"]
    assert keys(Ui(), "?", "?", "esc")[0].view == "main"


def test_the_detail_stays_on_its_request() -> None:
    first = rows_of(Ui(), SCENE.shown)[0].id
    assert keys(Ui(), "enter")[0].cursor == first
    assert keys(Ui(), "enter", scene=Scene(samples.snapshot(count=0)))[0].cursor == ""


def test_panels_expand_by_number() -> None:
    for number in range(1, len(PANELS) + 1):
        ui, _ = keys(Ui(), str(number))
        assert (ui.view, ui.panel) == ("panel", number - 1)
        assert keys(ui, str(number))[0].view == "main"
    assert keys(Ui(), "1", "3")[0].panel == 2
    assert PANELS[keys(Ui(), "v")[0].panel] == "events"


def test_escape_leaves_the_view_before_the_filter() -> None:
    ui = Ui(filter="x", view="detail")
    assert keys(ui, "esc")[0].filter == "x"
    assert keys(ui, "esc", "esc")[0] == Ui()


def test_the_interval_has_ends() -> None:
    faster, effect = keys(Ui(), "+")
    assert faster.interval_s < 1.0
    assert effect == Effect("interval", str(faster.interval_s))
    assert keys(Ui(), "-")[0].interval_s > 1.0
    assert keys(Ui(), *["+"] * 9)[0].interval_s == INTERVALS_S[0]
    assert keys(Ui(), *["-"] * 9)[0].interval_s == INTERVALS_S[-1]


def test_tab_switches_engines() -> None:
    ui, effect = keys(Ui(cursor="x", held=3, view="detail"), "tab")
    assert effect == Effect("switch", "tiny")
    assert (ui.cursor, ui.held, ui.view) == ("", None, "main")
    alone = Scene(samples.snapshot(engines=("qwen",)))
    assert keys(Ui(), "tab", scene=alone)[1] is None
    stranger = Scene(samples.snapshot(engines=("tiny",)))
    assert keys(Ui(), "tab", scene=stranger)[1] == Effect("switch", "tiny")


@pytest.mark.parametrize("key", sorted(ACTIONS))
def test_actions_are_refused_read_only(key: str) -> None:
    ui, effect = keys(Ui(), key)
    assert effect is None
    assert ui.dialog is None
    assert "read-only" in ui.notice


@pytest.mark.parametrize("key", sorted(ACTIONS))
def test_actions_ask_and_cancel_is_first(key: str) -> None:
    ui, effect = keys(Ui(allow_actions=True), key)
    assert effect is None
    assert ui.dialog is not None
    assert ui.dialog.engine == "qwen"
    for answer in ("enter", "esc", "n", "N"):
        after, effect = keys(ui, answer)
        assert effect is None
        assert after.dialog is None
    assert keys(ui, *"jxhlqpaDCwt?7+", "space", "pageup", "backspace")[0].dialog == ui.dialog


def seen(ui: Ui) -> Ui:
    assert ui.dialog is not None
    return replace(ui, dialog=replace(ui.dialog, is_seen=True))


def test_y_does_it_once_the_question_was_on_the_screen() -> None:
    ui, _ = keys(Ui(allow_actions=True), "j", "a")
    assert keys(ui, "y") == (ui, None)
    for key in "yY":
        after, effect = keys(seen(ui), key)
        assert (after.dialog, effect) == (None, Effect("abort", ui.cursor))


@pytest.mark.parametrize("word", ["default", "abort", "drain", "day", "Czy", "all xylophones"])
def test_a_word_that_is_typed_blindly_does_nothing(word: str) -> None:
    ui, done = Ui(allow_actions=True), []
    for key in (*("space" if char == " " else char for char in word), "enter"):
        ui, effect = keys(ui, key)
        done.append(effect)
    assert not [effect for effect in done if effect is not None and effect.kind in ACTIONS.values()]


def test_arrows_and_tab_move_the_mark() -> None:
    ui, _ = keys(Ui(allow_actions=True), "a")
    for key in ("left", "right", "up", "down", "tab", "backtab"):
        after, _ = keys(ui, key)
        assert after.dialog is not None and after.dialog.choice == 1, key


def test_an_action_needs_two_keys_after_the_dialog() -> None:
    ui, _ = keys(Ui(allow_actions=True), "j", "a")
    assert keys(ui, "tab", "enter")[1] == Effect("abort", ui.cursor)
    assert keys(ui, "right", "left", "enter")[1] is None


def test_the_target_is_fixed_when_the_dialog_opens() -> None:
    ui, _ = keys(Ui(allow_actions=True), "a")
    target = rows_of(ui, SCENE.shown)[0].id
    other = Scene(samples.snapshot(requests=samples.requests(3)))
    assert keys(ui, "right", "enter", scene=other)[1] == Effect("abort", target)


def test_nothing_to_abort() -> None:
    ui, _ = keys(Ui(allow_actions=True), "a", scene=Scene(samples.snapshot(count=0)))
    assert ui.dialog is None
    assert "no request" in ui.notice


def test_other_effects() -> None:
    for key, kind in (("r", "reset"), ("w", "save"), ("ctrl-z", "suspend"), ("ctrl-l", "redraw")):
        assert keys(Ui(), key)[1] == Effect(kind)


def test_a_notice_lasts_until_the_next_key() -> None:
    assert keys(replace(Ui(), notice="saved"), "j")[0].notice == ""


def test_a_replay_is_stepped_by_hand_and_never_leaves_its_ends() -> None:
    scenes = [Scene(samples.snapshot(seq=n), tuple(range(30))) for n in range(30)]
    ui = Ui(held=0, is_replay=True)
    for key, at in (("]", 1), ("right", 2), ("}", 12), ("[", 11), ("left", 10), ("{", 0), ("L", 29)):
        ui, effect = press(ui, key, scenes[ui.held or 0])
        assert (ui.held, effect, ui.notice) == (at, None, "")
    last, _ = press(ui, "]", scenes[29])
    assert (last.held, last.notice) == (29, "the end of the recording")
    first, _ = press(Ui(held=0, is_replay=True), "[", scenes[0])
    assert (first.held, first.notice) == (0, "its beginning")
    still, _ = press(ui, "p", scenes[29])
    assert still.held == 29 and "a replay stands still" in still.notice
