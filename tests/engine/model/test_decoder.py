"""The decoder against transformers' own tokens and logits, and against itself in every arrangement of the same work."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.model.inputs import Row
from tests.support.steps import Job, Steps, load
from tests.support.tiny_model import make_tiny_model

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
ARCHITECTURES = ("llama", "untied", "mistral", "qwen2", "qwen3")


def reference(arch: str) -> list[dict[str, list[int]]]:
    return json.loads((FIXTURES / f"tiny_{arch}" / "reference.json").read_text())


@pytest.fixture(scope="module", params=["eager", "native"])
def kernels(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_logits_are_those_of_transformers(arch: str, kernels: str) -> None:
    worker = load(FIXTURES / f"tiny_{arch}", dtype="float32", kernels=kernels).worker
    for row in reference(arch):
        ids = row["prompt_ids"]
        with torch.inference_mode():
            hidden = worker.run([Row(ids, 0, len(ids), np.arange(100, 120))])
            logits = worker.decoder.logits(hidden[-1:])[0]
        torch.testing.assert_close(logits, torch.tensor(row["logits"]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("chunk", [4096, 16, 1])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_greedy_tokens_are_those_of_transformers(arch: str, chunk: int, kernels: str) -> None:
    rows = reference(arch)
    steps = Steps(load(FIXTURES / f"tiny_{arch}", dtype="float32", kernels=kernels), chunk=chunk)
    jobs = [Job(row["prompt_ids"], count=len(row["tokens"]), arrives=2 * index) for index, row in enumerate(rows)]
    assert steps.run(jobs) == [row["tokens"] for row in rows]
    assert steps.mixed_steps > 0 or chunk == 1
    assert (steps.chunks > 0) == (chunk < 200)


def mixed_jobs(vocab: int = 320, count: int = 32) -> list[Job]:
    """Lengths from 1 to 190, several of them long enough to have their attention computed alone."""
    rng = np.random.default_rng(5)
    lengths = [1 + (index * 37) % 190 for index in range(count)]
    return [
        Job(rng.integers(3, vocab, length).tolist(), count=6 + index % 9, arrives=index // 6)
        for index, length in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def alone(tiny: Path, kernels: str) -> list[list[int]]:
    executor = load(tiny, blocks=600, kernels=kernels)
    return [Steps(executor).run([job])[0] for job in mixed_jobs_now()]


def mixed_jobs_now() -> list[Job]:
    jobs = mixed_jobs()
    for job in jobs:
        job.arrives = 0
    return jobs


def test_output_is_varied(alone: list[list[int]]) -> None:
    assert len({token for output in alone for token in output}) > 50


@pytest.mark.parametrize("chunk", [4096, 16])
def test_batch_of_32_gives_what_each_gives_alone(tiny: Path, alone: list[list[int]], chunk: int, kernels: str) -> None:
    steps = Steps(load(tiny, blocks=600, kernels=kernels), chunk=chunk)
    assert steps.run(mixed_jobs()) == alone
    assert steps.mixed_steps > 0
    assert (steps.chunks > 0) == (chunk == 16)


def test_preemption_changes_no_token(tiny: Path, alone: list[list[int]], kernels: str) -> None:
    steps = Steps(load(tiny, blocks=600, kernels=kernels), preempt_every=3)
    assert steps.run(mixed_jobs()) == alone
    assert steps.preemptions > 5


@pytest.mark.parametrize("block_size", [1, 7, 64])
def test_block_size_changes_no_token(tiny: Path, alone: list[list[int]], block_size: int, kernels: str) -> None:
    steps = Steps(load(tiny, blocks=600 * 16 // block_size, block_size=block_size, kernels=kernels))
    assert steps.run(mixed_jobs()) == alone


@pytest.mark.parametrize("chunk", [4096, 16])
def test_nan_in_blocks_that_are_free_changes_no_token(
    tiny: Path, alone: list[list[int]], chunk: int, kernels: str
) -> None:
    steps = Steps(load(tiny, blocks=600, kernels=kernels), chunk=chunk)
    cache = steps.executor.worker.cache
    # All but the padding block: also the rest of each block that a request fills by and by.
    with torch.inference_mode():
        cache.keys[:, :-1] = torch.nan
        cache.values[:, :-1] = torch.nan
    assert steps.run(mixed_jobs()) == alone
    assert bool(cache.keys.isnan().any())
    assert not bool(cache.keys[:, -1].any())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_gives_the_same_tokens(tiny: Path, alone: list[list[int]]) -> None:
    assert Steps(load(tiny, blocks=600, device="cuda", dtype="float32")).run(mixed_jobs()) == alone
