"""An IO thread dies in a real engine process: every client hears of it, the exit status and the log tell of it too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine_process import Running

pytestmark = [pytest.mark.e2e, pytest.mark.fault]
PROMPT = [5, 6, 7, 8]


def saboteur(name: str) -> str:
    return f"tests.support.saboteurs:{name}"


def test_engine_in(tiny_model: Path) -> None:
    with Running(tiny_model, num_clients=3, executor=saboteur("EngineInKiller")) as running:
        poison = running.frontend.add("poison", PROMPT, max_tokens=1)
        running.frontend.pump(lambda: poison.is_finished)
        running.frontend.ask("ping", client=1)
        running.frontend.wait_dead(10)
        assert running.engine.wait() == 1
        assert "thread engine-in died: MemoryError: engine-in has no memory" in running.engine.log
        assert "the executor was shut down" in running.engine.log


@pytest.mark.parametrize("deaths", ["1", "2"])
def test_engine_out(tiny_model: Path, deaths: str) -> None:
    """Another one takes its place for the last words, and one more when that dies as well."""
    options = {"executor": saboteur("EngineOutKiller"), "env": {"TEST_DEATHS": deaths}}
    with Running(tiny_model, num_clients=3, **options) as running:
        good = running.frontend.add("good", PROMPT, max_tokens=2)
        running.frontend.pump(lambda: good.is_finished)
        running.frontend.add("poison", PROMPT, max_tokens=20, client=1)
        running.frontend.wait_dead(10)
        assert running.engine.wait() == 1
        assert "thread engine-out died: MemoryError: engine-out has no memory" in running.engine.log
        assert "the executor was shut down" in running.engine.log
