"""Everything a hostile peer may send, to a real engine process with a real model: counted, dropped, answered by its id;
the next good request gives the tokens it gave before. Also where every assert of the engine is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.messages import FinishReason, UtilityOutput
from tests.support import hostile
from tests.support.engine_process import Running, stats_with_nothing_left
from tests.support.wait import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.fault, pytest.mark.timeout(120)]
OWN_CALLS_FROM = 2**63 + 17


def tokens(running: Running, name: str) -> list[list[int]]:
    """Of four prompts at once."""
    names = [f"{name}-{number}" for number in range(4)]
    for number, one in enumerate(names):
        running.frontend.add(one, [5 + 31 * number + place for place in range(20)], max_tokens=12, ignore_eos=True)
    return [done.token_ids for done in running.frontend.collect_all(names)]


def forgive(running: Running) -> list[UtilityOutput]:
    """Answers to calls that the noise made do not count as an engine's mistake; they are returned."""
    found: list[UtilityOutput] = []
    take = running.frontend._take_answer

    def forgiving(answer: UtilityOutput, client: int) -> None:
        if answer.call_id >= OWN_CALLS_FROM:
            take(answer, client)
        else:
            found.append(answer)

    running.frontend._take_answer = forgiving  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(("executor", "environment"), [("uniproc", {}), ("null", {"PYTHONOPTIMIZE": "2"})])
def test_all_of_it_between_two_good_requests(
    tiny_model: Path, tmp_path: Path, executor: str, environment: dict[str, str]
) -> None:
    """Optimised without a model: compiling the whole of torch anew would take longer than all the rest."""
    bomb = tmp_path / "bomb"
    options = {"executor": executor, "kv_memory": "16MiB", "dtype": "float32", "kernels": "eager", "env": environment}
    with Running(tiny_model, num_clients=2, **options) as running:
        frontend = running.frontend
        before = tokens(running, "before")
        assert executor == "null" or len({token for output in before for token in output}) > 8
        answers = forgive(running)
        found = frontend.add(hostile.REQUEST_ID, [5], max_tokens=1)
        sent = 0
        for sent, (_, frames) in enumerate(hostile.messages(bomb), 1):
            frontend.send_frames(frames, sent % 2)
        assert tokens(running, "after") == before
        wait_until(lambda: frontend.call("stats")["running"] == 0, 10.0, "the other client's requests have ended")
        stats = stats_with_nothing_left(frontend)
        assert stats["rejected_messages"] > 1000 < sent
        assert found.num_finals > 100, "what has an id that can be read is answered"
        assert any(one.finish_reason == FinishReason.ERROR for one in found.outputs)
        assert len(answers) > 10 and all(one.failure_message or one.result for one in answers)
        assert not bomb.exists()
