"""The whole core, scheduler and model together, in float32: however work is arranged, the tokens are those of
transformers. Each arrangement also shows in its counter that it took place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.client import EngineConfig, InprocClient, SamplingParams, new_request
from engine.reports import EngineStats
from tests.support.default_model import default_model

pytestmark = pytest.mark.thread
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
ARCHITECTURES = ("llama", "untied", "mistral", "qwen2", "qwen3")
BATCH = 32


def client(model: Path, **settings: Any) -> InprocClient:
    given = {"dtype": "float32", "max_model_len": 256, "num_gpu_blocks": 600, "max_num_seqs": BATCH, **settings}
    return InprocClient(EngineConfig(model=str(model), threads=1, **{"kernels": "eager", **given}))


def run(engine: InprocClient, prompts: list[list[int]], params: list[SamplingParams]) -> list[list[int]]:
    """All at once; the outputs in the order of the prompts."""
    ids = [engine.add(new_request(prompt, one)) for prompt, one in zip(prompts, params, strict=True)]
    return [[token for output in engine.stream(name) for token in output.new_token_ids] for name in ids]


def stats(engine: InprocClient) -> EngineStats:
    found = EngineStats(phase="running")
    engine.core.scheduler.fill_engine_stats(found)
    return found


def reference(path: Path, count: int) -> tuple[list[list[int]], list[list[int]], list[SamplingParams]]:
    """Prompts, tokens of transformers, and greedy parameters of mixed lengths: `count` of each."""
    rows = json.loads(path.read_text())
    rows = [rows[index % len(rows)] for index in range(count)]
    lengths = [len(row["tokens"]) - index % 7 for index, row in enumerate(rows)]
    params = [SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True) for length in lengths]
    tokens = [row["tokens"][:length] for row, length in zip(rows, lengths, strict=True)]
    return [row["prompt_ids"] for row in rows], tokens, params


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_alone_in_a_batch_of_32_mixed_lengths_and_from_the_prefix_cache(arch: str) -> None:
    prompts, tokens, params = reference(FIXTURES / f"tiny_{arch}" / "reference.json", BATCH)
    with client(FIXTURES / f"tiny_{arch}") as engine:
        assert [run(engine, [prompts[i]], [params[i]])[0] for i in range(4)] == tokens[:4]
        before = stats(engine).prefix_hits
        assert run(engine, prompts, params) == tokens
        assert stats(engine).prefix_hits > before


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_batch_of_32_in_chunks_of_16_tokens_with_preemption_forced(arch: str) -> None:
    prompts, tokens, params = reference(FIXTURES / f"tiny_{arch}" / "reference.json", BATCH)
    settings = {"num_gpu_blocks": 24, "max_num_batched_tokens": 16, "enable_prefix_caching": False}
    with client(FIXTURES / f"tiny_{arch}", **settings) as engine:
        assert run(engine, prompts, params) == tokens
        found = stats(engine)
        assert found.preemptions > 0 and found.chunked_prefills > 0


def test_seeded_tokens_alone_in_a_batch_and_after_preemption() -> None:
    prompts, _, _ = reference(FIXTURES / "tiny_llama" / "reference.json", BATCH)
    params = [
        SamplingParams(seed=7 + i, temperature=0.9, top_p=0.95, max_tokens=16, ignore_eos=True) for i in range(32)
    ]
    with client(FIXTURES / "tiny_llama") as engine:
        together = run(engine, prompts, params)
        assert [run(engine, [prompts[i]], [params[i]])[0] for i in range(8)] == together[:8]
    with client(FIXTURES / "tiny_llama", num_gpu_blocks=16) as engine:
        assert run(engine, prompts, params) == together
        assert stats(engine).preemptions > 0
    assert len({token for output in together for token in output}) > 50


@pytest.mark.model
@pytest.mark.timeout(400)
def test_the_default_model_from_the_prefix_cache_and_after_preemption() -> None:
    prompts, tokens, params = reference(FIXTURES / "smollm2_greedy.json", 8)
    settings = {"block_size": 4, "num_gpu_blocks": 40, "max_model_len": 160, "kernels": "native"}
    with client(default_model(), **settings) as engine:
        assert run(engine, prompts, params) == tokens
        assert run(engine, prompts, params) == tokens
        found = stats(engine)
        assert found.prefix_hits > 0 and found.preemptions > 0
