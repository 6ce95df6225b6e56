from __future__ import annotations

import pytest

from enginectl.control import RequestView
from enginectl.supervisor.explain import Scene, explain, step_times

DECODE = [(2, 0.02)] * 20


def runs(name: str, blocks: int, output: int = 10, maximum: int = 110, **more: object) -> RequestView:
    return RequestView(
        id=name, state="running", prompt_tokens=blocks * 16 - output - 1, output_tokens=output, max_tokens=maximum,
        blocks=blocks, blocks_needed=0, **more,
    )  # type: ignore[arg-type]  # fmt: skip


def waits(name: str, needed: int, state: str = "waiting") -> RequestView:
    return RequestView(
        id=name, state=state, prompt_tokens=needed * 16 - 1, max_tokens=50, blocks=0, blocks_needed=needed
    )  # type: ignore[arg-type]


def scene(*items: RequestView, free: int = 2, total: int = 40, **more: object) -> Scene:
    settings: dict[str, object] = {"free_blocks": free, "total_blocks": total, "max_num_seqs": 8}
    settings |= {"steps": DECODE, "decodes": DECODE}
    return Scene(items=items, **(settings | more))  # type: ignore[arg-type]


def test_blocks_hold_it_and_the_holders_are_named_largest_first() -> None:
    target = waits("x", 20)
    items = [runs(name, blocks, maximum=30) for name, blocks in (("small", 6), ("big", 28), ("tiny", 2))]
    found = explain(target, scene(*items, target, free=4))
    assert (found.limit, found.position) == ("blocks", 1)
    assert "20 KV blocks are needed, 4 of 40 are free" in found.because
    assert [holder.id for holder in found.holders] == ["big", "small", "tiny"]
    assert found.holders[0].share == 0.7
    assert found.holders[0].tokens_left == 20
    assert found.expected_start_steps == 20
    assert found.expected_start_s == pytest.approx(0.4)


def test_places_hold_it() -> None:
    target = waits("x", 1)
    found = explain(target, scene(runs("a", 2, maximum=40), runs("b", 2), target, max_num_seqs=2))
    assert (found.limit, found.because) == ("sequences", "all 2 places run")
    assert found.expected_start_steps == 30


def test_who_is_ahead_is_named_with_what_holds_it() -> None:
    first, target = waits("first", 30), waits("x", 1)
    found = explain(target, scene(runs("a", 38), first, target))
    assert (found.limit, found.position) == ("blocks", 2)
    assert found.because.startswith("1 ahead of it; the first of them, first, waits: 30 KV blocks")


def test_prompts_take_the_budget() -> None:
    target = waits("x", 1)
    found = explain(target, scene(runs("long", 30, output=0), target, free=8))
    assert found.limit == "tokens"


@pytest.mark.parametrize(
    ("more", "limit", "word"),
    [
        ({"paused": "keep"}, "paused", "resume"),
        ({"is_sleeping": True}, "sleeping", "wake"),
        ({"stalled": "one step has run for 70 s"}, "stalled", "70 s"),
    ],
)
def test_what_holds_everybody_comes_first(more: dict[str, object], limit: str, word: str) -> None:
    target = waits("x", 1)
    found = explain(target, scene(runs("a", 2), target, **more))
    assert found.limit == limit and word in found.because
    assert found.expected_start_s is None


def test_a_pause_that_waits_lets_what_runs_go_on() -> None:
    one = runs("a", 2)
    assert explain(one, scene(one, paused="wait")).limit == ""
    assert explain(one, scene(one, paused="keep")).tok_s == 0.0


def test_one_that_runs_has_rate_and_rest() -> None:
    one = runs("a", 2, tpot_ms=25.0, preemptions=3)
    found = explain(one, scene(one, steps=(), decodes=()))
    assert found.tok_s == pytest.approx(40.0)
    assert found.tokens_left == 100
    assert found.eta_s == pytest.approx(2.5)
    assert explain(one, scene(one)).tok_s == pytest.approx(50.0)  # the steps of now, not the mean since its first token
    assert found.position is None
    assert any("preempted 3 times" in note for note in found.notes)


def test_a_drain_that_it_will_miss_is_noted() -> None:
    one = runs("a", 2, tpot_ms=25.0)
    assert "it will miss that" in explain(one, scene(one, drain_left_s=1.0)).notes[0]
    assert "it will miss that" not in explain(one, scene(one, drain_left_s=9.0)).notes[0]
    assert "holds new requests back" in explain(one, scene(one, is_cordoned=True)).notes[0]


def test_what_cannot_be_known_is_not_said() -> None:
    target = RequestView(id="x", state="waiting", prompt_tokens=5)
    found = explain(target, scene(target, knows_order=False, free_blocks=None, steps=()))
    assert (found.limit, found.blocks_needed, found.expected_start_s, found.step_ms) == ("unknown", None, None, None)
    assert found.tokens_left is None


def test_shared_blocks_are_counted_once() -> None:
    """Two hold the same 20 blocks: the end of the first frees nothing like 20."""
    target = waits("x", 17)
    both = [runs("a", 20, maximum=20), runs("b", 20, maximum=50)]
    alone = explain(target, scene(*both, target, free=6, total=46))
    shared = explain(target, scene(*both, target, free=6, total=26))
    assert (alone.expected_start_steps, shared.expected_start_steps) == (10, 40)


def test_step_times_tell_decode_from_prefill() -> None:
    assert step_times([], []) == (None, 0.0)
    decodes = [(4, 0.02), (4, 0.02)]
    step_s, prefill_s = step_times([*decodes, (1004, 1.02)], decodes, 4)
    assert step_s == 0.02
    assert prefill_s == pytest.approx(0.001, rel=0.01)


def pace(decodes: list[tuple[int, float]], running: int) -> float | None:
    return step_times(decodes, decodes, running)[0]


def test_the_pace_is_that_of_the_last_steps_of_the_present_size() -> None:
    alone, eight = [(1, 0.01)] * 100, [(8, 0.07)] * 5
    assert pace([*alone, *eight], 8) == pytest.approx(0.07)
    assert pace([*alone, *eight], 1) == pytest.approx(0.01)
    assert pace([(8, 0.07), *[(8, 0.14)] * 16], 8) == pytest.approx(0.14)


def test_a_size_that_was_never_seen_costs_no_more_than_its_rows() -> None:
    assert pace([(1, 0.01)] * 9, 8) == pytest.approx(0.08)
    assert pace([(8, 0.07)] * 9, 2) == pytest.approx(0.07)


def test_a_step_of_many_that_only_decode_is_no_prefill() -> None:
    step_s, prefill_s = step_times([(200, 0.3)] * 9, [(200, 0.3)] * 9, 200)
    assert (step_s, prefill_s) == (pytest.approx(0.3), 0.0)  # type: ignore[comparison-overlap]


def test_a_small_prompt_is_no_batch() -> None:
    """Eight tokens of one prompt take what one row takes."""
    assert step_times([(1, 0.01), (8, 0.012)], [(1, 0.01)], 8)[0] == pytest.approx(0.08)


def test_an_engine_that_tells_no_blocks_is_said_to_be_the_reason() -> None:
    target = runs("x", 3)
    (note,) = explain(target, scene(target, knows_order=False, free_blocks=None, kv_used_ratio=0.61)).notes
    assert "tells nobody which request holds how many blocks" in note
    assert "61% of its cache is used" in note
