"""What is admitted, what is cut, and a test for each refusal: the text names the field and the number."""

from __future__ import annotations

import math

import msgspec
import pytest
from msgspec import Raw

from engine import codec, limits
from engine.admission import preprocess_add_request
from engine.errors import RequestRefused
from engine.messages import EngineCoreRequest, SamplingParams
from engine.scheduler.request import Request
from tests.support.golden import VERSIONS, captured

VOCAB = 100
MAX_LEN = 64


def wire(
    prompt: list[int] | None = None, params: dict[str, object] | None = None, **fields: object
) -> EngineCoreRequest:
    return EngineCoreRequest(
        **{  # type: ignore[arg-type]
            "request_id": "a",
            "prompt_token_ids": [1, 2, 3] if prompt is None else prompt,
            "sampling_params": SamplingParams(**(params or {})),  # type: ignore[arg-type]
            **fields,
        }
    )


def admit(request: EngineCoreRequest, num_gpu_blocks: int = 8, max_model_len: int = MAX_LEN) -> Request:
    return preprocess_add_request(
        request, vocab_size=VOCAB, max_model_len=max_model_len, num_gpu_blocks=num_gpu_blocks, block_size=16, seq=7
    )


def refusal(request: EngineCoreRequest, **limits_: int) -> str:
    with pytest.raises(RequestRefused) as caught:
        admit(request, **limits_)
    return str(caught.value)


def raw(value: object) -> Raw:
    return Raw(msgspec.msgpack.encode(value))


def test_a_plain_request() -> None:
    request = admit(wire(params={"max_tokens": 5}, priority=2, client_index=1))
    assert (request.request_id, request.client_index, request.priority, request.admitted_seq) == ("a", 1, 2, 7)
    assert (request.num_prompt_tokens, request.max_tokens) == (3, 5)


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_a_real_frontend_sent_is_admitted(version: str) -> None:
    count = 0
    for message in captured(version, "input"):
        decoded = codec.decode_request(message.frames)
        if isinstance(decoded, EngineCoreRequest):
            preprocess_add_request(
                decoded, vocab_size=49152, max_model_len=2048, num_gpu_blocks=364, block_size=128, seq=count
            )
            count += 1
    assert count == 15


@pytest.mark.parametrize(("asked", "given"), [(None, MAX_LEN - 3), (10**6, MAX_LEN - 3), (1, 1), (61, 61), (62, 61)])
def test_max_tokens_is_cut_to_what_is_left(asked: int | None, given: int) -> None:
    assert admit(wire(params={"max_tokens": asked})).max_tokens == given


def test_the_longest_prompt() -> None:
    assert admit(wire([1] * (MAX_LEN - 1))).max_tokens == 1
    for length in (MAX_LEN, MAX_LEN + 1, 10 * MAX_LEN):
        text = refusal(wire([1] * length))
        assert f"{length} tokens" in text and str(MAX_LEN) in text


@pytest.mark.parametrize("prompt_tokens", [7 * 16 - 1, 7 * 16, 7 * 16 + 1, 8 * 16])
def test_what_just_fits_the_cache(prompt_tokens: int) -> None:
    assert admit(wire([1] * prompt_tokens, {"max_tokens": 1}), max_model_len=1000).max_tokens == 1


@pytest.mark.parametrize(("prompt_tokens", "max_tokens"), [(8 * 16 + 1, 1), (8 * 16, 2), (3, None), (1, 8 * 16 + 1)])
def test_what_can_never_fit_the_cache(prompt_tokens: int, max_tokens: int | None) -> None:
    text = refusal(wire([1] * prompt_tokens, {"max_tokens": max_tokens}), max_model_len=1000)
    assert "8 blocks of 16" in text and f"{prompt_tokens} prompt tokens" in text


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"prompt_token_ids": []}, "prompt is empty"),
        ({"prompt_token_ids": None}, "needs prompt_token_ids"),
        ({"sampling_params": None}, "needs sampling_params"),
        ({"request_id": ""}, "request id is empty"),
        ({"request_id": "ä" * 513}, "1026 bytes"),
        ({"cache_salt": "s" * 5000}, "cache_salt has 5000"),
        ({"data_parallel_rank": 3}, "data_parallel_rank 3"),
        ({"priority": 2**40}, "priority"),
        ({"mm_features": raw([{}])}, "mm_features"),
        ({"pooling_params": raw({})}, "pooling_params"),
        ({"lora_request": raw(["name"])}, "lora_request"),
        ({"prompt_embeds": raw(["float32", [1], 1])}, "prompt_embeds"),
        ({"prompt_is_token_ids": raw([True, False])}, "prompt_is_token_ids"),
        ({"prompt_is_token_ids": raw("x")}, "prompt_is_token_ids"),
        ({"resumable": True}, "resumable"),
    ],
)
def test_refused_fields(fields: dict[str, object], complaint: str) -> None:
    assert complaint in refusal(wire(**fields))


def test_what_changes_nothing_is_no_reason_to_refuse() -> None:
    admit(wire(prompt_is_token_ids=raw([True, True, True]), mm_features=raw([]), data_parallel_rank=0))
    admit(wire(params={"watermarking": raw(False), "structured_outputs": raw({})}))
    admit(wire(session_id="s", kv_hints=raw({}), trace_headers={"a": "b"}, arrival_time=math.nan))
    assert admit(wire(abort_immediately=True)).num_prompt_tokens == 3


@pytest.mark.parametrize("token", [-1, VOCAB, VOCAB + 1, 2**31, 2**63])
@pytest.mark.parametrize(
    "field",
    ["stop_token_ids", "all_stop_token_ids", "eos_token_id", "logit_bias", "allowed_token_ids", "bad_words_token_ids"],
)
def test_token_ids_out_of_range(field: str, token: int) -> None:
    value = {"eos_token_id": token, "logit_bias": {5: 1.0, token: 1.0}, "bad_words_token_ids": [[1], [2, token]]}
    text = refusal(wire(params={field: value.get(field, [1, token])}))
    assert str(token) in text and field in text and str(VOCAB - 1) in text
    assert str(token) in refusal(wire([1, token, 2]))


def test_token_ids_in_range() -> None:
    ends = [0, VOCAB - 1]
    admit(
        wire(
            ends,
            {
                "stop_token_ids": ends,
                "all_stop_token_ids": ends,
                "eos_token_id": 0,
                "logit_bias": {0: -100.0, 99: 100.0},
                "allowed_token_ids": ends,
                "bad_words": ["x"],
                "bad_words_token_ids": [ends],
            },
        )
    )


BAD_NUMBERS = {
    "temperature": [-0.1, math.nan, math.inf],
    "top_p": [0.0, -0.5, 1.01, math.nan],
    "top_k": [-2, 2**31],
    "min_p": [-0.1, 1.1, math.nan],
    "presence_penalty": [-2.1, 2.1, math.nan],
    "frequency_penalty": [-2.1, 2.1, math.inf],
    "repetition_penalty": [0.0, -1.0, math.nan, math.inf],
    "seed": [2**63],
    "n": [0, 2, 10**9, -1],
    "max_tokens": [0, -1],
    "min_tokens": [-1, 17],
    "logprobs": [-2, VOCAB + 1, 10**9],
    "prompt_logprobs": [-2, VOCAB + 1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD_NUMBERS.items() for value in values])
def test_numbers_out_of_range(name: str, value: float) -> None:
    text = refusal(wire(params={name: value}))
    assert name in text and str(value) in text


GOOD_NUMBERS = {
    "temperature": [0.0, 2.0, 100.0],
    "top_p": [1e-6, 1.0],
    "top_k": [-1, 0, 1, 10**6],
    "min_p": [0.0, 1.0],
    "presence_penalty": [-2.0, 2.0],
    "repetition_penalty": [1e-3, 5.0],
    "seed": [0, -1, 2**63 - 1],
    "min_tokens": [0, 16],
    "logprobs": [-1, 0, VOCAB],
    "prompt_logprobs": [-1, 0, VOCAB],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in GOOD_NUMBERS.items() for value in values]
)
def test_numbers_in_range(name: str, value: float) -> None:
    assert getattr(admit(wire(params={name: value})).sampling_params, name) == value


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"logit_bias": {1: math.nan}}, "token 1 is nan"),
        ({"logit_bias": {1: math.inf}}, "token 1 is inf"),
        ({"logit_bias": dict.fromkeys(range(limits.MAX_LOGIT_BIAS + 1), 1.0)}, "logit_bias: 4097 entries"),
        ({"stop_token_ids": [1] * 10**5}, "stop_token_ids: 100000 entries"),
        ({"stop": ["x"] * 10**5}, "stop: 100000 entries"),
        ({"bad_words_token_ids": [[1]] * 10**5}, "100000 entries"),
        ({"bad_words_token_ids": [[1] * 1000]}, "1000 entries"),
        ({"bad_words_token_ids": [[]]}, "without tokens"),
        ({"bad_words": ["x"]}, "text only"),
        ({"allowed_token_ids": []}, "no token could be chosen"),
        ({"allowed_token_ids": [1] * 101}, "allowed_token_ids: 101 entries"),
        ({"structured_outputs": raw({"json": "{}"})}, "structured_outputs"),
        ({"repetition_detection": raw(True)}, "repetition_detection"),
        ({"logprob_token_ids": raw([1])}, "logprob_token_ids"),
        ({"thinking_token_budget": raw(5)}, "thinking_token_budget"),
        ({"watermarking": raw(True)}, "watermarking"),
        ({"prompt_logprob_token_ids": raw([1])}, "prompt_logprob_token_ids"),
        ({"prompt_logprob_start": raw(1)}, "prompt_logprob_start"),
    ],
)
def test_refused_sampling(params: dict[str, object], complaint: str) -> None:
    assert complaint in refusal(wire(params=params))


def test_prompt_logprobs_of_everything_are_bounded() -> None:
    big = EngineCoreRequest("a", [1] * 1000, sampling_params=SamplingParams(max_tokens=1, prompt_logprobs=-1))
    with pytest.raises(RequestRefused, match="prompt_logprobs = -1 for 1000 tokens are 50000000"):
        preprocess_add_request(big, vocab_size=50_000, max_model_len=2048, num_gpu_blocks=364, block_size=128, seq=1)
