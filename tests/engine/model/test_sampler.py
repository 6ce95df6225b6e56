"""The vectorised sampler against a slow one that takes a row at a time and reads like the definition."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from engine.messages import SamplingParams
from engine.model.sampler import Sampler, seeded_uniform
from engine.model.sampler_state import SamplerState

VOCAB = 60
CPU = torch.device("cpu")


def slow_logits(logits: list[float], params: SamplingParams, tokens: list[int], num_prompt: int) -> list[float]:
    """After masks, bias and penalties, before temperature."""
    out = list(logits)
    prompt, output = tokens[:num_prompt], tokens[num_prompt:]
    if params.allowed_token_ids is not None:
        out = [x if i in params.allowed_token_ids else -math.inf for i, x in enumerate(out)]
    for word in params.bad_words_token_ids or []:
        if len(word) == 1 or output[-(len(word) - 1) :] == word[:-1]:
            out[word[-1]] = -math.inf
    if len(output) < params.min_tokens:
        for end in {params.eos_token_id, *(params.stop_token_ids or []), *params.all_stop_token_ids} - {None}:
            out[end] = -math.inf
    for token, bias in (params.logit_bias or {}).items():
        out[token] += bias
    for token in set(tokens):
        factor = params.repetition_penalty
        out[token] = out[token] / factor if out[token] > 0 else out[token] * factor
    for token, count in Counter(output).items():
        out[token] -= params.frequency_penalty * count + params.presence_penalty
    assert len(prompt) == num_prompt
    return out


def slow_probabilities(logits: list[float], params: SamplingParams) -> list[float]:
    scaled = np.array(logits, np.float64) / params.temperature
    weights = np.exp(scaled - scaled.max())
    if params.min_p > 0:
        weights[weights < params.min_p] = 0
    order = np.argsort(-weights, kind="stable")
    if 0 < params.top_k < VOCAB:
        weights[order[params.top_k :]] = 0
    weights /= weights.sum()
    if params.top_p < 1:
        before = 0.0
        for token in order:
            share = weights[token]
            if before >= params.top_p:
                weights[token] = 0
            before += share
    return list(weights / weights.sum())


def slow_token(logits: list[float], params: SamplingParams, tokens: list[int], num_prompt: int) -> int:
    adjusted = slow_logits(logits, params, tokens, num_prompt)
    if params.temperature < 1e-5:
        return int(np.argmax(adjusted))
    total, uniform = 0.0, seeded_uniform(params.seed, len(tokens))
    probabilities = slow_probabilities(adjusted, params)
    for token, share in enumerate(probabilities):
        total += share
        if uniform < total:
            return token
    return max(token for token, share in enumerate(probabilities) if share > 0)


CASES = {
    "greedy": {"temperature": 0.0},
    "plain": {},
    "hot": {"temperature": 3.0},
    "cold": {"temperature": 0.2},
    "top_k": {"top_k": 5},
    "top_k_one": {"top_k": 1},
    "top_k_all": {"top_k": -1},
    "top_k_over": {"top_k": 10_000},
    "top_p": {"top_p": 0.7},
    "top_p_tiny": {"top_p": 1e-9},
    "min_p": {"min_p": 0.2},
    "all_cuts": {"top_k": 12, "top_p": 0.8, "min_p": 0.05, "temperature": 1.4},
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.8},
    "repetition": {"repetition_penalty": 1.7},
    "repetition_greedy": {"repetition_penalty": 5.0, "temperature": 0.0},
    "penalties": {"presence_penalty": -1.0, "frequency_penalty": 0.5, "repetition_penalty": 0.6},
    "bias": {"logit_bias": {3: 4.0, 7: -100.0, 59: 2.5}},
    "bias_greedy": {"logit_bias": {41: 50.0}, "temperature": 0.0},
    "allowed": {"allowed_token_ids": [2, 9, 11, 30]},
    "bad_words": {"bad_words_token_ids": [[4], [8, 10], [6, 7, 8, 11], [9, 9, 12]]},
    "min_tokens": {"min_tokens": 9, "eos_token_id": 2, "stop_token_ids": [5], "all_stop_token_ids": [2, 5, 6]},
    "min_tokens_met": {"min_tokens": 2, "eos_token_id": 2, "stop_token_ids": [5]},
}


def sharp_logits(seed: int, rows: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 2, (rows, VOCAB)).astype(np.float32))


def history(seed: int) -> tuple[list[int], int]:
    """Tokens that end in 7, 8: the beginnings of some bad words; and how many of them are the prompt."""
    rng = np.random.default_rng(seed + 1)
    return [*rng.integers(0, VOCAB, 6).tolist(), 6, 7, 8], 4


def state(params: SamplingParams, tokens: list[int], num_prompt: int) -> SamplerState:
    return SamplerState(params, tokens, num_prompt, VOCAB, CPU)


@pytest.mark.parametrize("seed", range(12))
def test_every_parameter_in_one_batch_equals_row_by_row(seed: int) -> None:
    params = [SamplingParams(seed=seed * 100 + index, **case) for index, case in enumerate(CASES.values())]
    logits = sharp_logits(seed, len(params))
    tokens, num_prompt = history(seed)
    expected = [slow_token(row.tolist(), p, tokens, num_prompt) for row, p in zip(logits, params, strict=True)]
    states = [state(p, list(tokens), num_prompt) for p in params]
    ids, errors = Sampler(0, CPU).sample(logits.clone(), states)
    assert not errors
    assert dict(zip(CASES, ids, strict=True)) == dict(zip(CASES, expected, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_alone_equals_in_a_batch(name: str) -> None:
    params = [SamplingParams(seed=index, **case) for index, case in enumerate(CASES.values())]
    logits = sharp_logits(99, len(params))
    tokens, num_prompt = history(7)
    ids, _ = Sampler(0, CPU).sample(logits.clone(), [state(p, list(tokens), num_prompt) for p in params])
    place = list(CASES).index(name)
    mine, _ = Sampler(5, CPU).sample(logits[place : place + 1].clone(), [state(params[place], tokens, num_prompt)])
    assert mine == [ids[place]]


def test_penalties_count_tokens_as_they_come() -> None:
    params = SamplingParams(temperature=0.0, frequency_penalty=0.5, presence_penalty=0.25)
    tokens = [1, 2]
    one = state(params, tokens, 2)
    logits = sharp_logits(3, 1)
    sampler = Sampler(0, CPU)
    for _ in range(30):
        expected = slow_token(logits[0].tolist(), params, tokens, 2)
        ids, _ = sampler.sample(logits.clone(), [one])
        assert ids == [expected]
        tokens.append(ids[0])
    assert len(set(tokens)) > 5


def test_state_made_late_equals_one_that_grew() -> None:
    """After a preemption the state is made anew from prompt and output."""
    params = SamplingParams(temperature=0.0, frequency_penalty=0.5, repetition_penalty=1.3)
    tokens = [1, 2, 3]
    grown = state(params, tokens, 2)
    grown.adjust(sharp_logits(1, 1)[0])
    tokens.extend([7, 7, 9])
    first, second = sharp_logits(2, 1)[0], sharp_logits(2, 1)[0]
    grown.adjust(first)
    state(params, list(tokens), 2).adjust(second)
    assert torch.equal(first, second)


def test_unseeded_draws_follow_the_probabilities() -> None:
    params = SamplingParams(top_k=4, temperature=0.8)
    logits = sharp_logits(11, 1).repeat(4000, 1)
    ids, _ = Sampler(1, CPU).sample(logits.clone(), [state(params, [1], 1)] * 4000)
    expected = slow_probabilities(logits[0].tolist(), params)
    for token, share in enumerate(expected):
        assert abs(ids.count(token) / 4000 - share) < 4 * math.sqrt(share * (1 - share) / 4000) + 1e-9


def test_unseeded_draws_differ_and_repeat_with_the_engine_seed() -> None:
    logits = torch.zeros(200, VOCAB)
    rows = [state(SamplingParams(), [1], 1)] * 200
    first, again, other = (Sampler(seed, CPU).sample(logits.clone(), rows)[0] for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) > 20


def test_seeded_number_depends_on_position() -> None:
    numbers = {seeded_uniform(1, position) for position in range(1000)}
    assert len(numbers) == 1000
    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1


def test_nan_and_fully_masked_rows_fail_alone() -> None:
    logits = sharp_logits(4, 4)
    logits[1, 5] = math.nan
    rows = [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.0),
        SamplingParams(allowed_token_ids=[]),
        SamplingParams(temperature=0.0),
    ]
    expected = logits.argmax(-1).tolist()
    ids, errors = Sampler(0, CPU).sample(logits.clone(), [state(p, [1], 1) for p in rows])
    assert sorted(errors) == [1, 2]
    assert ids == [expected[0], -1, -1, expected[3]]


def test_a_row_that_raises_fails_alone() -> None:
    logits = sharp_logits(4, 2)
    rows = [
        state(SamplingParams(temperature=0.0), [1], 1),
        state(SamplingParams(temperature=0.0, logit_bias={VOCAB + 5: 1.0}), [1], 1),
    ]
    expected = int(logits[0].argmax())
    ids, errors = Sampler(0, CPU).sample(logits, rows)
    assert ids == [expected, -1]
    assert "IndexError" in errors[1]
