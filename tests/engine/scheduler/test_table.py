"""What the request table says of who waits, and why."""

from __future__ import annotations

from tests.engine.scheduler.rig import Bench, make


def _waits(bench: Bench) -> dict[str, tuple[str, str, int]]:
    return {row.id: (row.state, row.waits_for, row.blocks_needed) for row in bench.scheduler.requests_table().items}


def _limits(bench: Bench) -> dict[str, str]:
    return {row.id: row.limit for row in bench.scheduler.requests_table().items}


def test_a_running_row_in_numbers() -> None:
    bench = Bench()
    bench.add(make("a", [3] * 7, client=2, priority=4, max_tokens=50))
    bench.step()
    bench.step()
    row = bench.scheduler.requests_table().items[0]
    assert (row.id, row.state, row.prompt_tokens, row.output_tokens, row.max_tokens) == ("a", "running", 7, 2, 50)
    assert (row.computed_tokens, row.cached_tokens, row.blocks, row.blocks_needed) == (8, 0, 2, 1)
    assert (row.preemptions, row.client, row.priority, row.waits_for) == (0, 2, 4, "")
    assert row.age_s > 0


def test_sequence_limit_blocks_and_place() -> None:
    bench = Bench(seqs=1)
    bench.add(make("a", [3], arrival=0.0), make("b", [3], arrival=1.0), make("c", [3], arrival=2.0))
    bench.step()
    assert _waits(bench) == {
        "a": ("running", "", 0),
        "b": ("waiting", "position 1; 1 of 1 sequences run", 1),
        "c": ("waiting", "position 2; 1 of 1 sequences run", 1),
    }
    assert _limits(bench) == {"a": "", "b": "sequences", "c": "sequences"}
    bench = Bench(blocks=10)
    bench.add(make("a", [3] * 24, arrival=0.0))
    bench.step()
    bench.add(make("b", [4] * 20, arrival=1.0), make("c", [5], arrival=2.0))
    assert _waits(bench)["b"] == ("waiting", "position 1; needs 5 blocks, 4 free", 5)
    assert _waits(bench)["c"] == ("waiting", "position 2", 1)
    assert _limits(bench) == {"a": "", "b": "blocks", "c": ""}


def test_cached_blocks_in_use_by_others_are_not_needed() -> None:
    bench = Bench(blocks=10)
    bench.add(make("a", [3] * 24, arrival=0.0, max_tokens=2))
    bench.step()
    bench.add(make("b", [3] * 25, arrival=1.0))
    assert _waits(bench)["b"] == ("waiting", "position 1", 1)


def test_preempted_say_what_they_need_to_come_back() -> None:
    bench = Bench(blocks=3)
    bench.add(make("a", [3] * 6, arrival=0.0, max_tokens=6), make("b", [4] * 4, arrival=1.0, max_tokens=6))
    bench.step()
    bench.step()
    assert _waits(bench)["b"] == ("preempted", "position 1; needs 2 blocks, 1 free", 2)
    row = bench.scheduler.requests_table().items[1]
    assert (row.id, row.computed_tokens, row.blocks, row.preemptions) == ("b", 0, 0, 1)


def test_paused() -> None:
    bench = Bench(seqs=1)
    bench.add(make("a", [3], arrival=0.0), make("b", [3], arrival=1.0))
    bench.step()
    bench.scheduler.pause("wait")
    assert {row: waits[1] for row, waits in _waits(bench).items()} == {"a": "", "b": "paused"}
    bench.scheduler.pause("keep")
    assert {row: waits[1] for row, waits in _waits(bench).items()} == {"a": "paused", "b": "paused"}
    assert _limits(bench) == {"a": "paused", "b": "paused"}


def test_the_limit_keeps_the_first_and_counts_all() -> None:
    bench = Bench(seqs=2)
    for number in range(30):
        bench.add(make(str(number), [3], arrival=float(number)))
    bench.step()
    table = bench.scheduler.requests_table(limit=5)
    assert [row.id for row in table.items] == ["0", "1", "2", "3", "4"] and table.total == 30
    assert len(bench.scheduler.requests_table(limit=1).items) == 1
    assert bench.scheduler.requests_table(limit=0).items == []
