"""Admission: an EngineCoreRequest enters, a scheduler Request leaves, or RequestRefused with the numbers.

Reads limits that never change, so any thread may call it. Whatever is asked for and not built here is refused, never
ignored; every check is plain code, so it holds under -O too."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sized
from dataclasses import dataclass

import msgspec
from msgspec import Raw

from engine import limits
from engine.errors import RequestRefused
from engine.messages import NIL, EngineCoreRequest, SamplingParams
from engine.scheduler.request import Request

NOT_BUILT = {
    "mm_features": "multimodal inputs",
    "pooling_params": "pooling",
    "lora_request": "LoRA adapters",
    "prompt_embeds": "prompt embeddings",
}
SAMPLING_NOT_BUILT = (
    "structured_outputs",
    "repetition_detection",
    "logprob_token_ids",
    "thinking_token_budget",
    "watermarking",
    "prompt_logprob_token_ids",
    "prompt_logprob_start",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What this engine can hold, in tokens."""

    vocab_size: int
    max_model_len: int
    num_gpu_blocks: int
    block_size: int

    @property
    def cache_tokens(self) -> int:
        return self.num_gpu_blocks * self.block_size


def preprocess_add_request(
    wire: EngineCoreRequest, *, vocab_size: int, max_model_len: int, num_gpu_blocks: int, block_size: int, seq: int
) -> Request:
    """Everything a request must be before the scheduler sees it. Raises RequestRefused."""
    limit = Limits(vocab_size, max_model_len, num_gpu_blocks, block_size)
    _check_identity(wire)
    _check_what_is_built(wire)
    params = wire.sampling_params
    if params is None:
        raise RequestRefused("a request needs sampling_params")
    prompt = _check_prompt(wire, limit)
    _check_sampling_not_built(params)
    _check_numbers(params)
    _check_lengths(params)
    _check_token_ids(params, limit)
    _check_logprobs(params, len(prompt), limit)
    request = Request.from_wire(wire, block_size=block_size, max_model_len=max_model_len, seq=seq)
    _check_fits(request.num_prompt_tokens, request.max_tokens, limit)
    return request


def _refuse_unless(holds: bool, text: str) -> None:
    if not holds:
        raise RequestRefused(text)


def _asks(raw: Raw) -> bool:
    """False for nil, false, 0 and everything empty."""
    return raw != NIL and bool(msgspec.msgpack.decode(raw))


def _check_identity(wire: EngineCoreRequest) -> None:
    _refuse_unless(bool(wire.request_id), "the request id is empty")
    size = len(wire.request_id.encode())
    _refuse_unless(
        size <= limits.MAX_REQUEST_ID_BYTES,
        f"the request id has {size} bytes, at most {limits.MAX_REQUEST_ID_BYTES} are taken",
    )
    if wire.cache_salt is not None:
        size = len(wire.cache_salt.encode())
        _refuse_unless(
            size <= limits.MAX_CACHE_SALT_BYTES,
            f"cache_salt has {size} bytes, at most {limits.MAX_CACHE_SALT_BYTES} are taken",
        )
    _refuse_unless(
        wire.data_parallel_rank in (None, 0),
        f"data_parallel_rank {wire.data_parallel_rank}: this engine is alone, rank 0",
    )
    _refuse_unless(abs(wire.priority) < 2**31, f"priority {wire.priority} is not in 32 bits")


def _check_what_is_built(wire: EngineCoreRequest) -> None:
    for name, what in NOT_BUILT.items():
        raw = getattr(wire, name)
        _refuse_unless(raw == NIL or bytes(raw) == b"\x90", f"{name}: {what} are not supported by this engine")
    _refuse_unless(not wire.resumable, "resumable: streamed prompts are not supported by this engine")
    if wire.prompt_is_token_ids != NIL:
        try:
            mask = msgspec.msgpack.decode(wire.prompt_is_token_ids, type=list[bool])
        except msgspec.MsgspecError:
            mask = [False]
        _refuse_unless(all(mask), "prompt_is_token_ids: prompt embeddings are not supported by this engine")


def _check_prompt(wire: EngineCoreRequest, limit: Limits) -> list[int]:
    prompt = wire.prompt_token_ids
    if prompt is None:
        raise RequestRefused("a request needs prompt_token_ids")
    _refuse_unless(bool(prompt), "the prompt is empty")
    _refuse_unless(
        len(prompt) < limit.max_model_len,
        f"the prompt has {len(prompt)} tokens; with one token of output the limit is {limit.max_model_len}",
    )
    _check_ids(prompt, "prompt_token_ids", limit)
    return prompt


def _check_fits(prompt_tokens: int, max_tokens: int, limit: Limits) -> None:
    """The last token sampled needs no slot. A request that outgrows the cache could never finish."""
    needed = prompt_tokens + max_tokens - 1
    _refuse_unless(
        needed <= limit.cache_tokens,
        f"{prompt_tokens} prompt tokens and up to {max_tokens} of output need "
        f"{math.ceil(needed / limit.block_size)} KV blocks; the cache has {limit.num_gpu_blocks} blocks of "
        f"{limit.block_size} tokens",
    )


def _check_ids(ids: Iterable[int], what: str, limit: Limits) -> None:
    ids = ids if isinstance(ids, list) else list(ids)
    if ids and (min(ids) < 0 or max(ids) >= limit.vocab_size):
        wrong = next(i for i in ids if not 0 <= i < limit.vocab_size)
        raise RequestRefused(f"{what}: token id {wrong} is not in 0 .. {limit.vocab_size - 1}")


def _check_sampling_not_built(params: SamplingParams) -> None:
    for name in SAMPLING_NOT_BUILT:
        _refuse_unless(not _asks(getattr(params, name)), f"{name} is not supported by this engine")
    _refuse_unless(params.n == 1, f"n = {params.n}: a frontend sends n requests with n = 1")


def _check_numbers(params: SamplingParams) -> None:
    """Ranges; a NaN fails every comparison, so each is written to be true of what is allowed."""
    checks = (
        ("temperature", 0 <= params.temperature < math.inf, "0 or more"),
        ("top_p", 0 < params.top_p <= 1, "above 0, at most 1"),
        ("top_k", -1 <= params.top_k < 2**31, "-1 or more (0 and -1: all)"),
        ("min_p", 0 <= params.min_p <= 1, "0 to 1"),
        ("presence_penalty", -2 <= params.presence_penalty <= 2, "-2 to 2"),
        ("frequency_penalty", -2 <= params.frequency_penalty <= 2, "-2 to 2"),
        ("repetition_penalty", 0 < params.repetition_penalty < math.inf, "above 0"),
    )
    for name, holds, allowed in checks:
        _refuse_unless(holds, f"{name} = {getattr(params, name)}: must be {allowed}")
    _refuse_unless(
        params.seed is None or -(2**63) <= params.seed < 2**63, f"seed = {params.seed}: must be a signed 64-bit number"
    )


def _check_lengths(params: SamplingParams) -> None:
    if params.max_tokens is not None:
        _refuse_unless(params.max_tokens >= 1, f"max_tokens = {params.max_tokens}: must be 1 or more")
    _refuse_unless(params.min_tokens >= 0, f"min_tokens = {params.min_tokens}: must be 0 or more")
    _refuse_unless(
        params.max_tokens is None or params.min_tokens <= params.max_tokens,
        f"min_tokens = {params.min_tokens} is more than max_tokens = {params.max_tokens}",
    )


def _check_count(found: Sized | None, what: str, most: int) -> None:
    if found is not None:
        _refuse_unless(len(found) <= most, f"{what}: {len(found)} entries, at most {most} are taken")


def _check_token_ids(params: SamplingParams, limit: Limits) -> None:
    bad_words = params.bad_words_token_ids or []
    _check_count(params.stop_token_ids, "stop_token_ids", limits.MAX_STOP_TOKEN_IDS)
    _check_count(params.all_stop_token_ids, "_all_stop_token_ids", limits.MAX_STOP_TOKEN_IDS)
    _check_count(params.logit_bias, "logit_bias", limits.MAX_LOGIT_BIAS)
    _check_count(params.allowed_token_ids, "allowed_token_ids", limit.vocab_size)
    _check_count(bad_words, "_bad_words_token_ids", limits.MAX_BAD_WORDS)
    _check_count(params.bad_words, "bad_words", limits.MAX_BAD_WORDS)
    _check_count(params.stop if isinstance(params.stop, list) else None, "stop", limits.MAX_STOP_STRINGS)
    _check_ids(params.stop_token_ids or [], "stop_token_ids", limit)
    _check_ids(params.all_stop_token_ids, "_all_stop_token_ids", limit)
    _check_ids([] if params.eos_token_id is None else [params.eos_token_id], "_eos_token_id", limit)
    _check_bias(params.logit_bias or {}, limit)
    if params.allowed_token_ids is not None:
        _refuse_unless(bool(params.allowed_token_ids), "allowed_token_ids is empty: no token could be chosen")
        _check_ids(params.allowed_token_ids, "allowed_token_ids", limit)
    for word in bad_words:
        _refuse_unless(bool(word), "_bad_words_token_ids: a bad word without tokens")
        _check_count(word, "_bad_words_token_ids: one word", limits.MAX_BAD_WORD_TOKENS)
        _check_ids(word, "_bad_words_token_ids", limit)
    _refuse_unless(
        not params.bad_words or bool(bad_words), "bad_words come as text only; the engine needs _bad_words_token_ids"
    )


def _check_bias(bias: dict[int, float], limit: Limits) -> None:
    _check_ids(bias.keys(), "logit_bias", limit)
    for token, value in bias.items():
        _refuse_unless(math.isfinite(value), f"logit_bias of token {token} is {value}: must be finite")


def _check_logprobs(params: SamplingParams, prompt_tokens: int, limit: Limits) -> None:
    for name in ("logprobs", "prompt_logprobs"):
        count = getattr(params, name)
        _refuse_unless(
            count is None or -1 <= count <= limit.vocab_size,
            f"{name} = {count}: must be -1 (all) to {limit.vocab_size}",
        )
    wanted = params.prompt_logprobs
    if wanted is not None:
        entries = prompt_tokens * (limit.vocab_size if wanted == -1 else wanted + 1)
        _refuse_unless(
            entries <= limits.MAX_PROMPT_LOGPROB_ENTRIES,
            f"prompt_logprobs = {wanted} for {prompt_tokens} tokens are {entries} numbers, at most "
            f"{limits.MAX_PROMPT_LOGPROB_ENTRIES} are sent",
        )
