"""Long random mixes on tiny caches: whatever happens, tokens are those of an undisturbed run, each request ends once,
something always moves on, and no block is lost. The seed of a failing mix is in the test's name."""

from __future__ import annotations

import gc
import random

import pytest

from engine.errors import RequestRefused
from engine.scheduler.request import Request
from tests.engine.scheduler.rig import Bench, check_invariants, generation, make

pytestmark = pytest.mark.thread

SILENT_STEPS = 60
"""A prefill has at most 60 tokens, and the first in the order gets at least one of every step."""


class Mix:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.block_size = rng.choice([1, 2, 3, 4, 8])
        self.bench = Bench(
            seqs=rng.randint(1, 6),
            budget=rng.randint(4, 40),
            blocks=rng.randint(3, 30),
            block_size=self.block_size,
            max_model_len=rng.randint(10, 60),
            caching=rng.random() < 0.8,
        )
        self.prompts: dict[str, list[int]] = {}
        self.limits: dict[str, int] = {}
        self.count = 0
        self.cut_short: set[str] = set()
        self.stems = [[rng.randint(2, 9) for _ in range(30)] for _ in range(2)]

    def arrive(self) -> None:
        rng, name = self.rng, f"r{self.count}"
        self.count += 1
        stem = rng.choice(self.stems)
        prompt = stem[: rng.randint(0, 30)] + [rng.randint(2, 40) for _ in range(rng.randint(1, 10))]
        limit = self.bench.scheduler.max_request_tokens()
        request_limit = rng.randint(1, 25)
        try:
            request = make(
                name,
                prompt,
                block_size=self.block_size,
                max_model_len=limit,
                seq=self.count,
                priority=rng.choice([0, 0, 0, -1, 2]),
                arrival=float(self.count - rng.randint(0, 3)),
                client=rng.randint(0, 2),
                salt=rng.choice([None, None, "s"]),
                max_tokens=request_limit,
                prompt_logprobs=rng.choice([None, None, None, 1]),
            )
        except RequestRefused:
            assert len(prompt) >= limit
            return
        self.bench.add(request)
        self.prompts[name] = prompt
        self.limits[name] = min(request_limit, limit - len(prompt))

    def disturb(self) -> None:
        rng, scheduler = self.rng, self.bench.scheduler
        live = list(scheduler._live)
        what = rng.random()
        if what < 0.04 and live:
            self.abort(rng.sample(live, min(len(live), rng.randint(1, 3))))
        elif what < 0.06 and scheduler.running:
            self.bench.runner.fails.add(rng.choice(scheduler.running).request_id)
        elif what < 0.08:
            scheduler.reset_prefix_cache(reset_running=rng.random() < 0.5)
        elif what < 0.09:
            scheduler.pause(rng.choice(["keep", "wait"]))
        elif what < 0.2:
            scheduler.resume()

    def abort(self, ids: list[str]) -> None:
        for _, output in self.bench.scheduler.abort(ids):
            self.cut_short.add(output.request_id)
            self.bench.take(output)

    def step(self) -> None:
        """One step, with an abort or a preemption of all in the middle of it now and then."""
        scheduler, rng = self.bench.scheduler, self.rng
        step = scheduler.schedule()
        result = self.bench.runner.execute(step)
        self.cut_short |= set(result.errors)
        if rng.random() < 0.03 and scheduler.running:
            self.abort([rng.choice(scheduler.running).request_id])
        elif rng.random() < 0.01:
            scheduler.reset_prefix_cache(reset_running=True)
        for outputs in scheduler.update_from_output(step, result).values():
            for output in outputs:
                self.bench.take(output)
        check_invariants(scheduler)

    def check_end(self) -> None:
        bench = self.bench
        assert bench.scheduler.kv_cache.num_free == bench.scheduler.kv_cache.num_blocks
        assert bench.finals == dict.fromkeys(self.prompts, 1)
        for name, prompt in self.prompts.items():
            whole = generation(prompt, self.limits[name])
            got = bench.tokens.get(name, [])
            assert got == whole[: len(got)]
            assert name in self.cut_short or (got == whole and bench.final[name].finish_reason == 1)
        assert sum(bench.scheduler.counters.finished.values()) == len(self.prompts)
        assert bench.scheduler.counters.output_tokens == sum(len(tokens) for tokens in bench.tokens.values())


@pytest.mark.parametrize("seed", range(30))
def test_a_mix(seed: int) -> None:
    mix = Mix(seed)
    for _ in range(150):
        for _ in range(mix.rng.choice([0, 0, 1, 1, 2])):
            mix.arrive()
        mix.disturb()
        if mix.bench.scheduler.has_work:
            mix.step()
    mix.bench.scheduler.resume()
    silent = 0
    while mix.bench.scheduler.has_work:
        before = mix.bench.scheduler.counters.output_tokens + len(mix.bench.order)
        mix.step()
        moved = mix.bench.scheduler.counters.output_tokens + len(mix.bench.order) > before
        silent = 0 if moved else silent + 1
        assert silent <= SILENT_STEPS
    mix.check_end()


@pytest.mark.parametrize("seed", range(15))
def test_undisturbed_mixes_keep_the_order_of_priority(seed: int) -> None:
    """With one sequence at a time the order of the ends is the order of the queue."""
    rng = random.Random(seed)
    bench = Bench(seqs=1, blocks=20, budget=rng.randint(4, 30))
    requests = [
        make(
            str(n),
            [rng.randint(2, 9) for _ in range(rng.randint(1, 20))],
            seq=n,
            max_tokens=rng.randint(1, 9),
            priority=rng.randint(-2, 2),
            arrival=float(rng.randint(0, 9)),
        )
        for n in range(25)
    ]
    bench.add(*requests)
    bench.run()
    assert bench.order == [request.request_id for request in sorted(requests, key=lambda request: request.order)]


def test_the_mixes_reach_what_they_are_for() -> None:
    """Preemptions, chunks and hits all happen in them, so they are not tests of an easy life."""
    totals = {"preemptions": 0, "chunked_prefills": 0, "prefix_hits": 0}
    for seed in range(20):
        mix = Mix(seed)
        for _ in range(60):
            mix.arrive()
            if mix.bench.scheduler.has_work:
                mix.step()
        for name in totals:
            totals[name] += getattr(mix.bench.scheduler.counters, name)
    assert all(total > 20 for total in totals.values()), totals


def test_nothing_is_left_of_many_requests() -> None:
    """The scheduler's own containers are as small after thousands as after a few."""
    bench = Bench(seqs=8, blocks=20)
    scheduler = bench.scheduler
    for number in range(3_000):
        bench.add(make(str(number), [2 + number % 40, 3 + number % 7] * 3, arrival=float(number), max_tokens=1))
        if number % 5 == 4:
            scheduler.abort([str(number)])
        if number % 10 == 9:
            bench.run()
    gc.collect()
    assert sum(isinstance(thing, Request) for thing in gc.get_objects()) < 100
    assert not scheduler.has_unfinished and scheduler.num_unfinished == 0
    assert len(scheduler.waiting.new._heap) < 100 and len(scheduler._book._dropped) < 10
    assert scheduler.kv_cache.num_cached <= 20
    assert scheduler.counters.finished["length"] == 2_400 and scheduler.counters.finished["abort"] == 600
