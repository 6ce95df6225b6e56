"""UniProcExecutor: faults kept with their request, seeds, log-probabilities, sleep, the profiler."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.config import EngineConfig
from engine.errors import EngineBug, ModelError
from engine.executor.uniproc import UniProcExecutor, available_memory_bytes
from engine.messages import NdArray, SamplingParams
from engine.model.inputs import Row
from engine.scheduler.output import ScheduledRow, SchedulerOutput
from tests.support.steps import Job, Steps, greedy, load
from tests.support.tiny_model import make_tiny_model

pytestmark = pytest.mark.thread

_NUMPY = {"int32": "<i4", "float32": "<f4", "int64": "<i8"}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


def values(array: NdArray) -> np.ndarray:
    return np.frombuffer(array.data, _NUMPY.get(array.dtype, array.dtype)).reshape(array.shape)


def prompts(count: int, length: int = 10) -> list[list[int]]:
    return np.random.default_rng(1).integers(3, 300, (count, length)).tolist()


def break_forward(executor: UniProcExecutor, error: Exception, poison: int | None) -> None:
    """The forward pass raises whenever the token `poison` is in it; None: always."""
    decoder = executor.worker.decoder
    forward = decoder.forward

    def failing(inputs: object, cache: object) -> torch.Tensor:
        if poison is None or poison in inputs.ids.tolist():
            raise error
        return forward(inputs, cache)

    decoder.forward = failing


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), torch.OutOfMemoryError("device")])
def test_a_forward_that_fails_for_one_request_ends_that_one(tiny: Path, error: Exception) -> None:
    jobs = [Job(prompt) for prompt in prompts(4)]
    expected = Steps(load(tiny)).run([Job(prompt) for prompt in prompts(4)])
    jobs[2].prompt[4] = 310
    executor = load(tiny)
    break_forward(executor, error, poison=310)
    outputs = Steps(executor).run(jobs)
    assert type(error).__name__ in str(jobs[2].error)
    assert [outputs[i] for i in (0, 1, 3)] == [expected[i] for i in (0, 1, 3)]
    assert [jobs[i].error for i in (0, 1, 3)] == [None] * 3


def test_the_engine_goes_on_when_all_rows_fail_but_the_model_works(tiny: Path) -> None:
    executor = load(tiny)
    break_forward(executor, RuntimeError("boom"), poison=310)
    steps = Steps(executor)
    jobs = [Job([5, 310, 6])]
    steps.run(jobs)
    assert "boom" in str(jobs[0].error)
    assert len(steps.run([Job([5, 6, 7], count=3)])[0]) == 3
    assert not bool(executor.worker.cache.keys[:, -1].any())


def test_the_engine_dies_when_not_even_one_token_can_run(tiny: Path) -> None:
    executor = load(tiny)
    break_forward(executor, RuntimeError("boom"), poison=None)
    with pytest.raises(RuntimeError, match="boom"):
        Steps(executor).run([Job([5, 6, 7]), Job([8])])


def test_sampling_parameters_that_cannot_be_used_end_their_request(tiny: Path) -> None:
    expected = Steps(load(tiny)).run([Job(prompts(1)[0])])
    bad = [
        greedy(allowed_token_ids=[999_999]),
        greedy(logit_bias={999_999: 1.0}),
        greedy(logprobs=10**6),
        greedy(repetition_penalty=2.0, min_tokens=3, all_stop_token_ids=[10**9]),
    ]
    jobs = [Job(prompts(1)[0]), *(Job([4, 5], params) for params in bad)]
    Steps(load(tiny)).run(jobs)
    assert jobs[0].output == expected[0]
    assert [job.error is None for job in jobs] == [True, False, False, True, False]
    assert len(jobs[3].output) == 8


def test_seeded_output_is_the_same_alone_in_a_batch_and_after_preemption(tiny: Path) -> None:
    def jobs() -> list[Job]:
        params = [SamplingParams(seed=7 + i, temperature=0.9, top_p=0.95, frequency_penalty=0.3) for i in range(32)]
        return [Job(prompt, p, count=12) for prompt, p in zip(prompts(32), params, strict=True)]

    executor = load(tiny, blocks=200)
    alone = [Steps(executor).run([job])[0] for job in jobs()]
    assert Steps(executor).run(jobs()) == alone
    preempted = Steps(executor, preempt_every=4, chunk=4)
    assert preempted.run(jobs()) == alone
    assert preempted.preemptions > 5
    assert len({token for output in alone for token in output}) > 50


def slow_logprobs(executor: UniProcExecutor, tokens: list[int]) -> torch.Tensor:
    """(n, V): of what follows each token, whole and alone."""
    worker = executor.worker
    with torch.inference_mode():
        return worker.decoder.logits(worker.run([Row(tokens, 0, len(tokens), np.arange(20))])).log_softmax(-1)


@pytest.mark.parametrize("best", [0, 1, 3, -1])
def test_logprobs_are_of_the_raw_logits(tiny: Path, best: int) -> None:
    executor = load(tiny)
    params = SamplingParams(seed=1, temperature=2.0, logprobs=best, presence_penalty=1.0, logit_bias={5: 9.0})
    job = Job(prompts(1)[0], params, count=5)
    Steps(executor).run([job, Job([3, 4], greedy(logprobs=2)), Job([5])])
    expected = slow_logprobs(executor, job.tokens)
    width = 321 if best < 0 else best + 1
    assert len(job.logprobs) == 5
    for index, message in enumerate(job.logprobs):
        ids, scores, ranks = values(message.token_ids), values(message.logprobs), values(message.ranks)
        row = expected[len(job.prompt) - 1 + index]
        assert (message.token_ids.dtype, message.logprobs.dtype, message.ranks.dtype) == ("<i4", "<f4", "<i8")
        assert ids.shape == scores.shape == (1, width)
        assert ranks.shape == (1,)
        assert ids[0, 0] == job.output[index]
        np.testing.assert_allclose(scores[0], row[ids[0].astype(int)].numpy(), atol=1e-4)
        assert (ids[0, 1:] == row.topk(width - 1).indices.numpy()).all()
        assert ranks[0] == int((row > row[job.output[index]]).sum()) + 1


@pytest.mark.parametrize("chunk", [4096, 7])
def test_prompt_logprobs_come_whole_at_the_end_of_the_prefill(tiny: Path, chunk: int) -> None:
    executor = load(tiny)
    prompt = prompts(1, 100)[0]
    job = Job(prompt, greedy(prompt_logprobs=2), count=3)
    steps = Steps(executor, chunk=chunk)
    steps.run([job, Job([3, 4])])
    assert (steps.chunks > 0) == (chunk == 7)
    message = job.prompt_logprobs
    ids, scores, ranks = values(message.token_ids), values(message.logprobs), values(message.ranks)
    assert (message.token_ids.dtype, message.logprobs.dtype, message.ranks.dtype) == ("int32", "float32", "int32")
    assert ids.shape == (99, 3)
    assert ids[:, 0].tolist() == prompt[1:]
    expected = slow_logprobs(executor, prompt)[:-1]
    np.testing.assert_allclose(scores, expected.gather(1, torch.from_numpy(ids.astype(np.int64))).numpy(), atol=1e-4)
    mine = expected.gather(1, torch.tensor(prompt[1:])[:, None])
    assert ranks.tolist() == ((expected > mine).sum(-1) + 1).tolist()


def test_a_prompt_of_one_token_has_no_prompt_logprobs(tiny: Path) -> None:
    job = Job([5], greedy(prompt_logprobs=2), count=2)
    Steps(load(tiny)).run([job])
    assert job.prompt_logprobs is None
    assert len(job.output) == 2


def test_what_is_dropped_is_forgotten(tiny: Path) -> None:
    executor = load(tiny)
    Steps(executor).run([Job([5, 6]) for _ in range(5)])
    assert len(executor.worker.held) == 0
    with pytest.raises(EngineBug, match="'0'"):
        executor.execute_model(SchedulerOutput(0, [ScheduledRow("0", 0, 1, [], True)]))


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_frees_and_wake_up_gives_the_same_tokens(tiny: Path, level: int) -> None:
    executor = load(tiny)
    expected = Steps(executor).run([Job([5, 6, 7])])
    executor.sleep(level)
    with pytest.raises(RuntimeError, match="wake_up"):
        executor.execute_model(SchedulerOutput(0, []))
    executor.wake_up()
    assert Steps(executor).run([Job([5, 6, 7])]) == expected


@pytest.mark.parametrize(("blocks", "block_size"), [(1, 1), (1, 16), (300, 16)])
def test_warm_up_fits_any_cache(tiny: Path, blocks: int, block_size: int) -> None:
    executor = load(tiny, blocks=blocks, block_size=block_size)
    executor.warm_up()
    assert len(executor.worker.held) == 0
    assert not bool(executor.worker.cache.keys[:, -1].any())


@pytest.mark.parametrize("length", [1, 2, 30])
def test_warm_up_fits_any_length(tiny: Path, length: int) -> None:
    executor = load(tiny, max_model_len=length)
    executor.warm_up()
    assert len(Steps(executor).run([Job([5], count=1)])[0]) == 1


def test_model_info_states_both_dtypes(tiny: Path) -> None:
    executor = load(tiny, dtype="bfloat16")
    info = executor.load_model(lambda phase, detail: None)
    assert info.dtype == "bfloat16"
    assert info.compute_dtype in ("bfloat16", "float32")
    assert info.kv_bytes_per_block == 2 * 2 * 2 * 16 * 16 * 2
    assert executor.worker.cache.keys[:, 0].nbytes * 2 == info.kv_bytes_per_block


def test_kv_memory_is_a_share_of_what_is_there(tiny: Path, tmp_path: Path) -> None:
    assert 0 < load(tiny).measure_kv_memory() <= 4 * 1024**3
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert available_memory_bytes(tmp_path) == 600_000


def test_profile_writes_a_trace(tiny: Path, tmp_path: Path) -> None:
    executor = load(tiny)
    trace = tmp_path / "trace.json"
    assert executor.profile(True, str(trace)) is None
    with pytest.raises(RuntimeError, match="already"):
        executor.profile(True, None)
    Steps(executor).run([Job([5, 6, 7])])
    assert executor.profile(False, None) == str(trace)
    assert json.loads(trace.read_text())["traceEvents"]
    with pytest.raises(RuntimeError, match="not running"):
        executor.profile(False, None)


def test_shutdown_twice(tiny: Path) -> None:
    executor = load(tiny)
    executor.shutdown()
    executor.shutdown()
    assert executor.worker is None


def test_a_device_that_is_not_there_is_refused(tiny: Path) -> None:
    with pytest.raises(ModelError, match="meta"):
        load(tiny, device="meta")


@pytest.mark.parametrize(("has_bf16", "held_as"), [(False, "float32"), (True, "")])
def test_the_model_says_in_which_type_its_weights_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_bf16: bool, held_as: str
) -> None:
    monkeypatch.setattr("engine.model.device.cpu_has_bf16", lambda: has_bf16)
    config = EngineConfig(model=str(make_tiny_model(tmp_path / "m")), dtype="bfloat16", kernels="eager")
    executor = UniProcExecutor(config)
    try:
        model = executor.load_model(lambda done, total: None)
    finally:
        executor.shutdown()
    why = "kernels=eager" if held_as else ""
    assert (model.dtype, model.held_as, model.held_why) == ("bfloat16", held_as, why)
