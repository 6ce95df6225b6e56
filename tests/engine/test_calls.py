"""Utility calls and requests that a real engine process refuses: each answer names its method or field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from engine.messages import EngineCoreRequest, FinishReason, SamplingParams
from tests.support.engine_process import Running

pytestmark = pytest.mark.e2e
PROMPT = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def odd(tiny_model: Path) -> Iterator[Running]:
    """Its profiler returns what cannot be sent, or fails."""
    options = {"executor": "tests.support.saboteurs:OddExecutor", "flags": ("--allow-unsafe-calls",)}
    with Running(tiny_model, num_gpu_blocks=256, **options) as running:
        yield running


def assert_serves(running: Running) -> None:
    running.frontend.add("good", PROMPT, max_tokens=2)
    assert running.frontend.collect("good").finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("method", "args", "says"),
    [
        ("pause_scheduler", [7], "pause_scheduler: argument mode"),
        ("sleep", ["1"], "sleep: argument level"),
        ("shutdown", [None], "shutdown: argument timeout_s"),
        ("abort_requests", [[1]], "abort_requests: argument request_ids"),
        ("abort_requests", [], "abort_requests takes 1 to 2 arguments"),
        ("pause_scheduler", ["keep", True, 1], "pause_scheduler takes 0 to 2 arguments"),
        ("requests", ["x"], "requests: argument limit"),
        ("__class__", [], "'__class__' is not a utility"),
        ("sleep", [5], "sleep: level is 0, 1 or 2, not 5"),
        ("add_lora", [None], "add_lora: "),
        ("profile", [True, "returns an object"], "profile returned object, which cannot be sent"),
        ("profile", [True, "raises"], "profile failed: ZeroDivisionError"),
        ("profile", [True, "half a character"], "profile returned str, which cannot be sent"),
        ("profile", [True, "nests"], "profile returned list, which cannot be sent"),
    ],
)
def test_a_call_that_fails_names_its_method_and_the_loop_goes_on(
    odd: Running, method: str, args: list[object], says: str
) -> None:
    answer = odd.frontend.answer(odd.frontend.ask(method, *args))
    assert answer.result is None and says in str(answer.failure_message)
    assert_serves(odd)


def raw(value: object) -> Raw:
    return Raw(msgspec.msgpack.encode(value))


@pytest.mark.parametrize(
    ("fields", "params", "says"),
    [
        ({"mm_features": raw([{"a": 1}])}, {}, "mm_features"),
        ({"pooling_params": raw({"task": "embed"})}, {}, "pooling_params"),
        ({"lora_request": raw(["name", 1])}, {}, "lora_request"),
        ({"prompt_embeds": raw(["float32", [1], msgspec.msgpack.Ext(3, bytes(4))])}, {}, "prompt_embeds"),
        ({"data_parallel_rank": 3}, {}, "data_parallel_rank 3"),
        ({"resumable": True}, {}, "resumable"),
        ({}, {"structured_outputs": raw({"json": "{}"})}, "structured_outputs"),
        ({}, {"repetition_detection": raw(True)}, "repetition_detection"),
        ({}, {"logprob_token_ids": raw([1])}, "logprob_token_ids"),
        ({}, {"thinking_token_budget": raw(5)}, "thinking_token_budget"),
        ({}, {"watermarking": raw(True)}, "watermarking"),
        ({}, {"bad_words": ["x"]}, "bad_words"),
        ({}, {"allowed_token_ids": [5, 320]}, "320"),
        ({}, {"all_stop_token_ids": [-1]}, "-1"),
        ({}, {"bad_words_token_ids": [[1], [2, 999]]}, "999"),
        ({}, {"top_p": 0.0}, "top_p"),
        ({}, {"repetition_penalty": float("inf")}, "repetition_penalty"),
        ({}, {"stop_token_ids": [1] * 100_000}, "100000 entries"),
        ({}, {"n": 10**9}, "1000000000"),
        ({}, {"logprobs": 10**9}, "1000000000"),
        ({"cache_salt": "s" * 5000}, {}, "cache_salt"),
        ({"prompt_token_ids": [5] * 128}, {}, "128"),
        ({"prompt_token_ids": [5] * 200_000}, {}, "200,?000"),
    ],
)
def test_a_request_that_asks_for_what_is_not_there_is_refused_by_name(
    small: Running, fields: dict[str, object], params: dict[str, object], says: str
) -> None:
    """Beside one that runs and one that waits, both of which go on."""
    given = {"prompt_token_ids": PROMPT, "sampling_params": SamplingParams(**params), **fields}  # type: ignore[arg-type]
    others = [small.frontend.add(f"other{number}", PROMPT, max_tokens=20) for number in range(2)]
    refused = small.frontend.send_request(EngineCoreRequest("refused", **given))  # type: ignore[arg-type]
    small.frontend.pump(lambda: refused.is_finished and all(one.is_finished for one in others))
    assert refused.finish_reason is FinishReason.ERROR and refused.num_finals == 1
    assert re.search(says, str(refused.stop_reason)), refused.stop_reason
    assert all(one.finish_reason is FinishReason.LENGTH for one in others)


@pytest.fixture(scope="module")
def small(tiny_model: Path) -> Iterator[Running]:
    """One request at a time, a cache for 128 tokens: the limit is what the cache can hold, and is said so."""
    with Running(tiny_model, executor="null", num_gpu_blocks=8, max_num_seqs=1) as running:
        assert running.ready.max_model_len == 128
        yield running
