"""A client that does not read, against a real engine process: bounded memory, nobody else is slowed, and once it reads
again it hears how each of its requests has ended."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from engine.messages import FinishReason
from tests.support.engine_process import Running

pytestmark = [pytest.mark.e2e, pytest.mark.fault]
SILENT, READER = 0, 1
BUDGET_MIB = 4
MOST_GROWTH = 100 * 2**20


def resident(running: Running) -> int:
    return int(psutil.Process(running.engine.pid).memory_info().rss)


def test_a_client_that_never_reads_costs_bounded_memory_and_slows_nobody(tiny_model: Path) -> None:
    """Rounds of 16 requests of 1,500 tokens with 5 logprobs each, all for the silent one: far over its budget."""
    options = {"executor": "tests.support.executors:LogprobsExecutor", "client_byte_budget": f"{BUDGET_MIB}MiB"}
    with Running(
        tiny_model, num_clients=2, num_gpu_blocks=4096, max_num_seqs=16, read_outputs=False, output_hwm=1, **options
    ) as running:
        frontend = running.frontend
        before = resident(running)
        asked = 0
        while int(stats(running)["dropped_outputs"]) == 0:
            assert asked < 2000, "the budget was never reached"
            for _ in range(16):
                frontend.add(f"silent-{asked}", [5, 6, 7], client=SILENT, max_tokens=1500, logprobs=5)
                asked += 1
            answer_of(running, "ping")
        frontend.add("reader", [5, 6, 7], client=READER, max_tokens=50)
        found = frontend.generations["reader"]
        while not found.is_finished:
            take_one(running)
        assert found.finish_reason is FinishReason.LENGTH and len(found.token_ids) == 50
        assert resident(running) - before < MOST_GROWTH
        assert int(stats(running)["pending_bytes"]) <= (BUDGET_MIB + 1) * 2**20
        silent = [one for name, one in frontend.generations.items() if name != "reader"]
        while not all(one.is_finished for one in silent):  # it reads again
            frontend._take(frontend.recv_output(SILENT), SILENT)
        lost = [one for one in silent if one.finish_reason is FinishReason.ERROR]
        assert lost and all("dropped" in str(one.stop_reason) for one in lost)
        assert all(one.num_finals == 1 for one in silent)
        assert all(len(one.token_ids) == 1500 for one in silent if one.finish_reason is FinishReason.LENGTH)
        frontend.add("again", [5, 6, 7], client=SILENT, max_tokens=20)
        again = frontend.generations["again"]
        while not again.is_finished:
            frontend._take(frontend.recv_output(SILENT), SILENT)
        assert again.finish_reason is FinishReason.LENGTH and len(again.token_ids) == 20


def take_one(running: Running) -> None:
    running.frontend._take(running.frontend.recv_output(READER), READER)


def answer_of(running: Running, method: str) -> object:
    """Through the seat that reads."""
    import msgspec

    call_id = running.frontend.ask(method, client=READER)
    while call_id not in running.frontend._answers:
        take_one(running)
    result = running.frontend._answers[call_id].result
    assert result is not None
    return msgspec.msgpack.decode(result.value)


def stats(running: Running) -> dict[str, int]:
    found = answer_of(running, "stats")
    assert isinstance(found, dict)
    return found
