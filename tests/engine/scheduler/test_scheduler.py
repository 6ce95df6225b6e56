"""One step after the other: budget, chunks, order, endings, what an output carries."""

from __future__ import annotations

import pytest

from engine.errors import RequestRefused
from engine.messages import FinishReason, Logprobs, NdArray
from engine.reports import EngineStats
from engine.scheduler.output import ModelRunnerOutput
from tests.engine.scheduler.rig import Bench, generation, make, scheduler


def _rows(step: object) -> list[tuple[str, int, int, bool]]:
    return [(row.request_id, row.start, row.num_tokens, row.samples) for row in step.rows]  # type: ignore[attr-defined]


def test_one_request_from_prompt_to_length() -> None:
    bench = Bench()
    bench.add(make("a", [3, 4, 5], max_tokens=3))
    step = bench.step()
    assert _rows(step) == [("a", 0, 3, True)]
    assert (step.num_tokens, step.num_prefill_tokens) == (3, 3)
    assert step.new_requests[0].token_ids == [3, 4, 5] and step.new_requests[0].block_ids == [0]
    step = bench.step()
    assert _rows(step) == [("a", 3, 1, True)] and step.rows[0].new_block_ids == []
    step = bench.step()
    assert _rows(step) == [("a", 4, 1, True)] and step.rows[0].new_block_ids == [1]
    assert not bench.scheduler.has_work and not bench.scheduler.has_unfinished
    assert bench.tokens["a"] == generation([3, 4, 5], 3)
    assert bench.final["a"].finish_reason == FinishReason.LENGTH and bench.final["a"].stop_reason is None
    assert bench.scheduler.schedule().dropped == ["a"]


def test_thirty_two_requests_take_hardly_more_steps_than_the_longest() -> None:
    bench = Bench(seqs=32, budget=512, blocks=400)
    for number in range(32):
        bench.add(make(str(number), [number + 2] * (1 + number % 9), max_tokens=5 + number))
    assert bench.run() == 36
    for number in range(32):
        assert bench.tokens[str(number)] == generation([number + 2] * (1 + number % 9), 5 + number)


@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("caching", [True, False])
def test_prefill_in_chunks_of_the_budget(length: int, caching: bool) -> None:
    prompt = list(range(2, 2 + length))
    bench = Bench(budget=16, caching=caching)
    bench.add(make("a", prompt, max_tokens=1))
    steps, prefill_tokens = [], 0
    while bench.scheduler.has_work:
        step = bench.step()
        steps.append(_rows(step))
        prefill_tokens += step.num_prefill_tokens
    assert prefill_tokens == length
    assert [row[0][1:3] for row in steps] == [(at, min(16, length - at)) for at in range(0, length, 16)]
    assert [row[0][3] for row in steps] == [False] * (len(steps) - 1) + [True]
    assert bench.scheduler.counters.chunked_prefills == (length > 16)
    assert bench.tokens["a"] == generation(prompt, 1)


def test_who_runs_keeps_its_token_while_others_prefill() -> None:
    bench = Bench(budget=8)
    bench.add(make("old", [3], max_tokens=50, arrival=1.0))
    bench.step()
    bench.add(make("long", [4] * 30, max_tokens=5, arrival=0.0, priority=-1), make("next", [5] * 20, arrival=2.0))
    assert _rows(bench.step()) == [("old", 1, 1, True), ("long", 0, 7, False)]
    assert _rows(bench.step()) == [("long", 7, 7, False), ("old", 2, 1, True)]
    bench.run()
    assert bench.tokens["old"] == generation([3], 50)


def test_more_sequences_than_budget_tokens_cannot_starve_anybody() -> None:
    bench = Bench(seqs=10, budget=3)
    for number in range(6):
        bench.add(make(str(number), [number + 2], max_tokens=4))
    bench.step()
    assert bench.scheduler.num_running == 3
    assert len(bench.step().rows) == 3
    bench.run()
    assert len(bench.final) == 6


def test_starts_go_by_priority_then_arrival() -> None:
    bench = Bench(seqs=1)
    bench.add(
        make("c", [3], arrival=2.0, max_tokens=2),
        make("b", [3], arrival=1.0, max_tokens=2),
        make("d", [3], priority=3, arrival=0.0, max_tokens=2),
        make("a", [3], priority=-3, arrival=9.0, max_tokens=2),
    )
    bench.run()
    assert bench.order == ["a", "b", "c", "d"]


def test_the_first_that_does_not_fit_holds_the_others_back() -> None:
    bench = Bench(blocks=10)
    bench.add(make("runs", [3] * 20, max_tokens=4, arrival=0.0))
    bench.step()
    bench.add(make("big", [4] * 24, max_tokens=1, arrival=1.0), make("small", [5], max_tokens=1, arrival=2.0))
    assert [row.request_id for row in bench.step().rows] == ["runs"]
    bench.run()
    assert bench.order == ["runs", "big", "small"]


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("length", "fits"), [(111, True), (112, True), (113, True), (127, True), (128, False), (129, False)]
)
def test_what_can_never_fit_is_refused_and_the_rest_goes_on(length: int, fits: bool) -> None:
    bench = Bench(blocks=8, budget=256, block_size=16)
    assert bench.scheduler.max_request_tokens() == 128
    bench.add(make("before", [3] * 4, block_size=16, max_tokens=3))
    big = make("big", [3] * length, block_size=16, max_tokens=3)
    if fits:
        bench.add(big)
    else:
        with pytest.raises(RequestRefused, match=f"{length} tokens.*128 tokens.*8 KV blocks of 16"):
            bench.add(big)
    bench.add(make("after", [3] * 4, block_size=16, max_tokens=3))
    bench.run()
    assert sorted(bench.final) == sorted(["before", "after"] + ["big"] * fits)
    if fits:
        assert len(bench.tokens["big"]) == min(3, 128 - length)


def test_a_second_live_request_with_an_id_is_refused_and_the_first_untouched() -> None:
    bench = Bench()
    bench.add(make("a", [3], max_tokens=4))
    bench.step()
    with pytest.raises(RequestRefused, match="'a' is already in flight"):
        bench.add(make("a", [9, 9], max_tokens=1))
    bench.run()
    assert bench.tokens["a"] == generation([3], 4)
    bench.add(make("a", [9, 9], max_tokens=1))
    bench.run()
    assert bench.finals["a"] == 2


# ---------------------------------------------------------------- endings


def test_eos_stop_id_and_length_are_told_apart() -> None:
    bench = Bench()
    bench.runner.script = {"eos": [5, 2], "id": [5, 17], "min": [2, 17, 2], "last": [5, 2]}
    common = {"eos_token_id": 2, "stop_token_ids": [17]}
    bench.add(
        make("eos", [3], max_tokens=9, **common),
        make("id", [3], max_tokens=9, **common),
        make("min", [3], max_tokens=9, min_tokens=3, **common),
        make("last", [3], max_tokens=2, **common),
        make("none", [3], max_tokens=2),
    )
    bench.run()
    endings = {name: (output.finish_reason, output.stop_reason) for name, output in bench.final.items()}
    assert endings == {"eos": (0, None), "id": (0, 17), "min": (0, None), "last": (0, None), "none": (1, None)}
    assert bench.tokens["min"] == [2, 17, 2] and bench.tokens["id"] == [5, 17]
    counted = {name: number for name, number in bench.scheduler.counters.finished.items() if number}
    assert counted == {"stop": 4, "length": 1}


def test_a_failed_part_ends_that_request_only() -> None:
    bench = Bench(budget=8)
    bench.add(*(make(name, [3 + at, 4], max_tokens=6, client=at) for at, name in enumerate("abc")))
    bench.add(make("long", [8] * 20, max_tokens=2, arrival=1.0))
    bench.step()
    bench.runner.fails = {"b", "long"}
    bench.run()
    for name in ("b", "long"):
        assert (bench.final[name].finish_reason, bench.final[name].stop_reason) == (3, "out of memory in its part")
        assert bench.finals[name] == 1
    assert bench.tokens["a"] == generation([3, 4], 6) and bench.tokens["c"] == generation([5, 4], 6)
    assert bench.scheduler.kv_cache.num_used == 0


def test_a_row_that_gives_no_token_and_no_error_is_an_error() -> None:
    sched = scheduler()
    sched.add(make("a", [3]))
    outputs = sched.update_from_output(sched.schedule(), ModelRunnerOutput([-1]))
    assert outputs[0][0].finish_reason == 3 and "no token" in str(outputs[0][0].stop_reason)


def test_an_answer_of_the_wrong_length_is_never_taken() -> None:
    sched = scheduler()
    sched.add(make("a", [3]))
    with pytest.raises(ValueError, match="zip"):
        sched.update_from_output(sched.schedule(), ModelRunnerOutput([]))


# ---------------------------------------------------------------- what an output carries


def test_outputs_go_by_client_and_the_first_carries_events_and_prefill() -> None:
    bench = Bench()
    bench.add(make("a", [3] * 9, client=0, max_tokens=2), make("b", [3] * 9, client=3, max_tokens=2))
    step = bench.scheduler.schedule()
    outputs = bench.scheduler.update_from_output(step, bench.runner.execute(step))
    assert {client: [o.request_id for o in made] for client, made in outputs.items()} == {0: ["a"], 3: ["b"]}
    first = outputs[3][0]
    assert first.events is not None and [event.type for event in first.events] == [1, 2]
    assert first.events[0].timestamp < first.events[1].timestamp
    stats = first.prefill_stats
    assert stats is not None and (stats.num_prompt_tokens, stats.num_computed_tokens, stats.num_cached_tokens) == (
        9,
        9,
        0,
    )
    step = bench.scheduler.schedule()
    second = bench.scheduler.update_from_output(step, bench.runner.execute(step))[3][0]
    assert second.events is None and second.prefill_stats is None


def _logprobs() -> Logprobs:
    return Logprobs(
        NdArray("<i4", [1, 1], b"\0" * 4), NdArray("<f4", [1, 1], b"\0" * 4), NdArray("<i8", [1], b"\0" * 8)
    )


def test_logprobs_reach_who_asked_and_prompt_logprobs_once() -> None:
    sched = scheduler()
    sched.add(make("a", [3] * 9, prompt_logprobs=1, logprobs=1, max_tokens=3))
    sched.add(make("b", [4], max_tokens=3))
    step = sched.schedule()
    assert [new.needs_prompt_logprobs for new in step.new_requests] == [True, False]
    mine, prompt = _logprobs(), _logprobs()
    a, b = sched.update_from_output(step, ModelRunnerOutput([5, 5], {"a": mine}, {"a": prompt}))[0]
    assert (a.new_logprobs is mine, a.new_prompt_logprobs is prompt) == (True, True)
    assert (b.new_logprobs, b.new_prompt_logprobs) == (None, None)
    assert sched.reset_prefix_cache(reset_running=True)
    step = sched.schedule()
    assert [new.needs_prompt_logprobs for new in step.new_requests] == [False, False]


def test_figures_match_the_count_by_hand() -> None:
    bench = Bench(blocks=40)
    bench.add(
        *(
            make(name, [at + 2] * length, max_tokens=9)
            for at, (name, length) in enumerate([("a", 3), ("b", 4), ("c", 9)])
        )
    )
    bench.step()
    stats = bench.scheduler.make_stats()
    assert stats.kv_cache_usage == (1 + 1 + 3) / 40 and stats.free_blocks == 35
    bench.step()
    stats = bench.scheduler.make_stats()
    assert stats.kv_cache_usage == (1 + 2 + 3) / 40, "b's fifth token needs a second block"
    bench.run()
    stats = bench.scheduler.make_stats()
    assert (stats.kv_cache_usage, stats.free_blocks, stats.num_running_reqs) == (0.0, 40, 0)
    engine = EngineStats(phase="running")
    bench.scheduler.fill_engine_stats(engine)
    assert (engine.prompt_tokens, engine.output_tokens, engine.free_blocks) == (16, 27, 40)
    assert engine.finished["length"] == 3 and engine.step_counter == bench.scheduler.step


def test_step_figures() -> None:
    bench = Bench(budget=10)
    bench.add(make("a", [3], max_tokens=9))
    bench.step()
    bench.add(make("b", [4] * 20, max_tokens=9))
    stats = bench.scheduler.make_stats(bench.step())
    assert (stats.num_scheduled_tokens, stats.num_prefill_tokens, stats.num_running_reqs) == (10, 9, 2)
