"""The default model against transformers in float32, which loaded the GGUF file itself (tests/fixtures)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from engine.executor.uniproc import UniProcExecutor
from tests.support.default_model import default_model
from tests.support.steps import Job, Steps, load

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
pytestmark = [pytest.mark.model, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, list[int]]]:
    return json.loads((FIXTURES / "smollm2_greedy.json").read_text())


@pytest.fixture(scope="module", params=["eager", "native"])
def executor(request: pytest.FixtureRequest) -> UniProcExecutor:
    """The converted weights, in float32: `tokens` are those of the reference rounded to bfloat16 likewise."""
    return load(default_model(), blocks=400, dtype="float32", max_model_len=2048, kernels=request.param)


def test_token_ids_of_200_strings() -> None:
    """Where transformers ignores how the file says digits are cut, the ids are those with that cut: 7 of the 200."""
    tokenizer = Tokenizer.from_file(str(default_model() / "tokenizer.json"))
    cases = json.loads((FIXTURES / "smollm2_tokens.json").read_text())
    assert len(cases) == 200
    assert sum("transformers_ids" in case for case in cases) == 7
    wrong = [case["text"] for case in cases if tokenizer.encode(case["text"]).ids != case["ids"]]
    assert wrong == []


def test_greedy_tokens_of_20_prompts_in_a_batch(executor: UniProcExecutor, rows: list[dict[str, list[int]]]) -> None:
    """32 requests of mixed lengths that come a few at a time."""
    jobs = [Job(rows[index % 20]["prompt_ids"], count=24, arrives=index // 5) for index in range(32)]
    steps = Steps(executor)
    outputs = steps.run(jobs)
    assert outputs == [rows[index % 20]["tokens"] for index in range(32)]
    assert steps.mixed_steps > 0
    assert steps.steps <= 1.3 * 24


def test_greedy_tokens_alone(executor: UniProcExecutor, rows: list[dict[str, list[int]]]) -> None:
    assert [Steps(executor).run([Job(row["prompt_ids"], count=24)])[0] for row in rows] == [r["tokens"] for r in rows]


def test_greedy_tokens_in_chunks_of_16(executor: UniProcExecutor, rows: list[dict[str, list[int]]]) -> None:
    steps = Steps(executor, chunk=16, preempt_every=9)
    assert steps.run([Job(row["prompt_ids"], count=24) for row in rows]) == [row["tokens"] for row in rows]
    assert steps.chunks > 0
    assert steps.preemptions > 0


def test_the_roman_empire_begins(executor: UniProcExecutor) -> None:
    tokenizer = Tokenizer.from_file(str(default_model() / "tokenizer.json"))
    prompt = tokenizer.encode("The history of the Roman Empire begins with").ids
    text = tokenizer.decode(Steps(executor).run([Job(prompt, count=12)])[0])
    assert text.startswith(" the founding of Rome in 75")
