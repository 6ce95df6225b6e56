from __future__ import annotations

import random

from engine.messages import EngineCoreRequest, SamplingParams
from engine.scheduler.output import ModelRunnerOutput
from engine.scheduler.request import Request
from engine.scheduler.scheduler import Scheduler
from enginectl.supervisor.forecast import Load, Start, forecast

BLOCK = 16


def load(name: str, tokens: int, left: int, order: int = 0, *, runs: bool = True) -> Load:
    blocks = -(-tokens // BLOCK)
    return Load(name, tokens, left, blocks=blocks if runs else 0, blocks_to_start=0 if runs else blocks, order=order)


def test_it_starts_at_once_when_it_fits() -> None:
    found = forecast(
        "x", [load("a", 16, 100)], [load("x", 40, 5, runs=False)], free=3, block_size=BLOCK, max_num_seqs=4
    )
    assert found == Start(0, 0)


def test_a_place_is_free_when_the_first_ends() -> None:
    running = [load("a", 16, 100), load("b", 16, 30, 1)]
    waiting = [load("x", 40, 5, runs=False)]
    assert forecast("x", running, waiting, free=100, block_size=BLOCK, max_num_seqs=2) == Start(30, 0)


def test_who_is_ahead_starts_first() -> None:
    running = [load("a", 16, 20)]
    waiting = [load("y", 32, 50, 1, runs=False), load("x", 40, 5, 2, runs=False)]
    assert forecast("x", running, waiting, free=100, block_size=BLOCK, max_num_seqs=1) == Start(70, 32)


def test_what_never_fits_is_not_foreseen() -> None:
    found = forecast("x", [], [load("x", 1000, 5, runs=False)], free=3, block_size=BLOCK, max_num_seqs=4)
    assert found is None


def request(name: str, prompt: int, output: int, seq: int) -> Request:
    wire = EngineCoreRequest(
        name, [seq * 7 + n for n in range(prompt)], sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
        arrival_time=float(seq),
    )  # fmt: skip
    return Request.from_wire(wire, block_size=BLOCK, max_model_len=4096, seq=seq)


def steps_until_it_runs(scheduler: Scheduler, name: str) -> int:
    """The real scheduler, with tokens that end nothing."""
    for steps in range(5000):
        step = scheduler.schedule()
        if any(row.request_id == name for row in step.rows):
            return steps
        scheduler.update_from_output(step, ModelRunnerOutput([1] * len(step.rows)))
    raise AssertionError("never")


def loads_of(scheduler: Scheduler) -> tuple[list[Load], list[Load]]:
    table = scheduler.requests_table()
    loads = [
        (row.state, Load(row.id, row.prompt_tokens + row.output_tokens, row.max_tokens - row.output_tokens, row.blocks,
                         row.blocks_needed, order))
        for order, row in enumerate(table.items)
    ]  # fmt: skip
    return [one for state, one in loads if state == "running"], [one for state, one in loads if state != "running"]


def test_it_agrees_with_the_scheduler_on_many_mixes() -> None:
    """Full caches, preemptions, several in the line: never off by more than the prefill of those ahead explains."""
    for seed in range(30):
        dice = random.Random(seed)
        scheduler = Scheduler(
            max_num_seqs=dice.choice([3, 8, 100]), max_num_batched_tokens=4096, max_model_len=4096,
            num_gpu_blocks=60, block_size=BLOCK, enable_prefix_caching=False,
        )  # fmt: skip
        for seq in range(12):
            scheduler.add(request(f"r{seq}", dice.randint(5, 200), dice.randint(5, 200), seq))
        scheduler.add(request("last", 300, 5, 12))
        for _ in range(dice.randint(3, 20)):
            step = scheduler.schedule()
            scheduler.update_from_output(step, ModelRunnerOutput([1] * len(step.rows)))
        running, waiting = loads_of(scheduler)
        if not any(one.id == "last" for one in waiting):
            continue
        found = forecast(
            "last", running, waiting, free=scheduler.kv_cache.num_free, block_size=BLOCK,
            max_num_seqs=scheduler.max_num_seqs,
        )  # fmt: skip
        real = steps_until_it_runs(scheduler, "last")
        assert found is not None
        assert 0.8 * real - 3 <= found.steps <= 1.25 * real + 3, (seed, found, real)
