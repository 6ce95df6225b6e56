"""`explain` on a real engine whose cache is full: who holds it, and when the next one will start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engine.messages import SamplingParams
from enginectl.channel import ControlStream
from enginectl.client import Engine
from enginectl.control_explain import ExplainArgs, Explanation, ExplanationList
from enginectl.control_verbs import GenerateChunk, GenerateEnd
from enginectl.errors import NoSuchRequest
from tests.support.rig import Rig, rig_in
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
PROMPT = 500
"""Tokens of the one that waits: only its own prefill is so long a step."""
STREAMS: list[ControlStream[GenerateChunk, GenerateEnd]] = []
"""What this test began; closing one aborts it."""


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """64 blocks: 24 tokens less than a hog of 600 with 200 to come leaves to one of 500."""
    with (
        pytest.MonkeyPatch.context() as patch,
        rig_in(tmp_path_factory.mktemp("full"), patch) as rig,
        rig.start("t", env={"PACED_STEP_MS": "15"}, num_gpu_blocks=64, max_num_seqs=8) as engine,
    ):
        yield engine


@pytest.fixture
def engine(full: Engine) -> Iterator[Engine]:
    yield full
    while STREAMS:
        STREAMS.pop().close()
    full.call("resume_scheduler")
    full.call("abort_requests", [view.id for view in full.requests()])
    wait_until(lambda: not full.requests(), 10.0, "an idle engine")


def ask(engine: Engine, name: str) -> Explanation:
    return engine.control.request("explain", ExplainArgs(id=name), ExplanationList).items[0]


def begin(engine: Engine, name: str, prompt: int, output: int) -> None:
    """A generation that nobody reads."""
    ids = [(len(name) * 31 + n * n) % 200 + 3 for n in range(prompt)]
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    STREAMS.append(engine.generate(ids, params, request_id=name))


def test_the_holder_is_named_and_the_start_is_foreseen(
    engine: Engine, record_property: Callable[[str, object], None]
) -> None:
    begin(engine, "hog", 600, 200)
    begin(engine, "mouse", 40, 400)
    wait_until(lambda: sum(view.output_tokens > 5 for view in engine.requests()) == 2, 20.0, "two that run")
    begin(engine, "late", PROMPT, 20)
    wait_until(lambda: any(view.external_id == "late" and view.blocks_needed for view in engine.requests()), 10.0, "it")
    found = ask(engine, "late")
    assert (found.limit, found.position) == ("blocks", 1)
    assert [holder.external_id for holder in found.holders] == ["hog", "mouse"]
    assert found.blocks_needed == 32 and (found.blocks_free or 0) < 32
    assert found.expected_start_steps and found.expected_start_s
    wait_until(lambda: ask(engine, "late").request.output_tokens > 0, 30.0, "its start")
    rows = engine.call("flight_record")
    assert isinstance(rows, list)
    starts = [row["step"] for row in rows if PROMPT <= row["prefill_tokens"] < 600]  # type: ignore[index, call-overload]
    real = starts[0] - found.step
    record_property("expected_per_real_steps", round(found.expected_start_steps / real, 3))
    assert 0.5 <= found.expected_start_steps / real <= 2.0


def test_places_and_what_runs(engine: Engine) -> None:
    for number in range(9):
        begin(engine, f"r{number}", 8, 200)
    wait_until(lambda: sum(view.state == "running" for view in engine.requests()) == 8, 20.0, "eight that run")
    last = ask(engine, engine.requests()[-1].id)
    assert last.limit == "sequences" and "all 8 places run" in last.because
    assert last.expected_start_steps and last.expected_start_steps <= 200
    wait_until(lambda: (ask(engine, "r0").tok_s or 0) > 0, 10.0, "a rate")
    first = ask(engine, "r0")
    assert first.request.state == "running" and first.position is None
    assert first.tokens_left == 200 - first.request.output_tokens
    engine.call("pause_scheduler", "keep", False)
    wait_until(lambda: ask(engine, "r0").limit == "paused", 10.0, "a pause")


def test_a_batch_that_has_grown_is_not_foretold_with_the_steps_of_the_one_before(rig: Rig) -> None:
    """One alone, then as many as fit: a step takes seven times what nearly all of the last minute took."""
    with rig.start("t", env={"PACED_STEP_MS": "2", "PACED_ROW_MS": "8"}, max_num_seqs=8) as engine:
        begin(engine, "alone", 8, 900)
        wait_until(lambda: engine.requests()[0].output_tokens > 100, 30.0, "a hundred steps of one")
        for number in range(8):
            begin(engine, f"r{number}", 8, 150)

        def that_wait() -> list[str]:
            views = engine.requests()
            waiting = [view.id for view in views if view.state == "waiting"]
            return waiting if len(views) == 9 and len(waiting) == 1 else []

        (last,) = wait_until(that_wait, 20.0, "all places taken and one more")
        found = ask(engine, last)
        assert found.limit == "sequences" and found.expected_start_steps and found.expected_start_s
        assert found.step_ms and found.step_ms >= 64
        assert found.expected_start_s >= found.expected_start_steps * 0.064
        assert (ask(engine, "alone").tok_s or 0) <= 1000 / 64
        while STREAMS:
            STREAMS.pop().close()


def test_ids_that_mean_nothing_say_so(engine: Engine) -> None:
    with pytest.raises(NoSuchRequest, match="no request 'nobody'"):
        ask(engine, "nobody")
    list(engine.generate([3, 4], SamplingParams(max_tokens=2), request_id="done"))
    with pytest.raises(NoSuchRequest, match="not in flight any more") as caught:
        ask(engine, "done")
    assert "length" in caught.value.cause
    for name in ("twin-a", "twin-b"):
        begin(engine, name, 8, 200)
    wait_until(lambda: len(engine.requests()) == 2, 10.0, "two")
    with pytest.raises(NoSuchRequest, match="several"):
        ask(engine, "twin")


def test_nothing_of_a_prompt_is_told(engine: Engine) -> None:
    begin(engine, "r", 8, 100)
    wait_until(engine.requests, 10.0, "it")
    assert "token_ids" not in str(ask(engine, "r"))
