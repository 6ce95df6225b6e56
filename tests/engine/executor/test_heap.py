"""Freed memory goes back when the process has grown, and only then; the engine asks for it when its work has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.core import EngineCore
from engine.executor import heap
from engine.executor.heap import WORTH_BYTES, Heap, resident_bytes, return_memory
from engine.executor.null import NullExecutor
from engine.messages import EngineCoreRequest, SamplingParams
from tests.support.tiny_model import make_tiny_model


class Machine:
    """A process of a size that a test sets; what can be given back goes when it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
        self.held, self.freed, self.asked = held, 0, 0
        monkeypatch.setattr(heap, "resident_bytes", lambda: self.held + self.freed)
        monkeypatch.setattr(heap, "return_memory", self._return)

    def _return(self) -> None:
        self.freed, self.asked = 0, self.asked + 1


def test_it_gives_back_once_for_each_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 100 * WORTH_BYTES)
    found = Heap()
    assert not found.shrink() and machine.asked == 0
    machine.freed = WORTH_BYTES - 1
    assert not found.shrink() and machine.asked == 0
    machine.freed = WORTH_BYTES
    assert found.shrink() and (machine.asked, machine.freed) == (1, 0)
    assert not found.shrink() and machine.asked == 1


def test_what_is_held_counts_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, 100 * WORTH_BYTES)
    found = Heap()
    machine.held += 3 * WORTH_BYTES
    assert found.shrink() and not found.shrink()
    machine.held -= 2 * WORTH_BYTES
    assert not found.shrink()
    machine.held += WORTH_BYTES
    assert found.shrink(), "it is measured from the smallest since"


def test_the_size_is_that_of_this_process() -> None:
    return_memory()  # what others left would be taken again
    before = resident_bytes()
    assert before > 0
    more = bytearray(b"x" * 64 * 1024**2)
    assert resident_bytes() - before > len(more) // 2


def test_the_core_rests_once_after_work(tmp_path: Path) -> None:
    rests: list[int] = []

    class Resting(NullExecutor):
        def rest(self) -> None:
            rests.append(1)

    config = EngineConfig(model=str(make_tiny_model(tmp_path / "model")), executor="null", num_gpu_blocks=8)
    core = EngineCore(config, Resting(config))
    core.rest()
    assert rests == [], "there was no work yet"
    wire = EngineCoreRequest(request_id="a", prompt_token_ids=[1, 2], sampling_params=SamplingParams(max_tokens=2))
    core.add_request(core.preprocess_add_request(wire))
    while core.scheduler.has_work:
        core.step()
        assert rests == []
    core.rest()
    core.rest()
    assert rests == [1]
    core.shutdown()
