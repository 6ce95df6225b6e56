"""Requests as the input thread makes them: limits, stop conditions, block hashes."""

from __future__ import annotations

import math

import pytest

from engine.errors import RequestRefused
from engine.messages import EngineCoreRequest, FinishReason, SamplingParams
from engine.scheduler.request import Request
from tests.engine.scheduler.rig import make


@pytest.mark.parametrize(("asked", "effective"), [(5, 5), (90, 90), (91, 90), (10**12, 90), (None, 90)])
def test_max_tokens_is_cut_to_what_the_limit_leaves(asked: int | None, effective: int) -> None:
    request = make("a", [3] * 10, max_model_len=100, max_tokens=asked)
    assert request.max_tokens == effective
    assert request.length_limit == 10 + effective


@pytest.mark.parametrize("length", [100, 101, 1000])
def test_a_prompt_that_leaves_no_room_is_refused(length: int) -> None:
    with pytest.raises(RequestRefused, match=f"{length} tokens.*100"):
        make("a", [3] * length, max_model_len=100)


def test_prompt_and_params_must_be_there() -> None:
    for bad in (EngineCoreRequest("a", [], sampling_params=SamplingParams()), EngineCoreRequest("a", [1])):
        with pytest.raises(RequestRefused):
            Request.from_wire(bad, block_size=4, max_model_len=100, seq=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_arrival_time_that_has_no_order_is_replaced(value: float) -> None:
    assert math.isfinite(make("a", [3], arrival=value).arrival_time)


def _ending(token: int, **sampling: object) -> tuple[FinishReason, int | None] | None:
    request = make("a", [3], **sampling)
    request.output_token_ids.append(token)
    request.num_tokens += 1
    return request.finish_by(token)


def test_eos_stops_without_a_reason_and_a_stop_id_with_itself() -> None:
    both = {"eos_token_id": 2, "stop_token_ids": [17], "all_stop_token_ids": [17, 2]}
    assert _ending(2, **both) == (FinishReason.STOP, None)
    assert _ending(17, **both) == (FinishReason.STOP, 17)
    assert _ending(5, **both) is None
    assert _ending(9, eos_token_id=2, all_stop_token_ids=[2, 9]) == (FinishReason.STOP, 9)


def test_ignore_eos_ignores_all_end_tokens_but_not_the_ids_asked_for() -> None:
    assert _ending(2, eos_token_id=2, all_stop_token_ids=[2], ignore_eos=True) is None
    assert _ending(2, all_stop_token_ids=[2], ignore_eos=True) is None
    assert _ending(17, stop_token_ids=[17], all_stop_token_ids=[17, 2], ignore_eos=True) == (FinishReason.STOP, 17)


def test_min_tokens_delays_both_but_not_the_length() -> None:
    assert _ending(2, eos_token_id=2, min_tokens=2) is None
    assert _ending(17, stop_token_ids=[17], min_tokens=2) is None
    assert _ending(2, eos_token_id=2, min_tokens=1) == (FinishReason.STOP, None)
    assert _ending(2, eos_token_id=2, min_tokens=2, max_tokens=1) == (FinishReason.LENGTH, None)


def test_hashes_cover_full_blocks_and_are_chained() -> None:
    assert [len(make("a", [3] * n).block_hashes) for n in (1, 3, 4, 5, 7, 8)] == [0, 0, 1, 1, 1, 2]
    first, second = make("a", [1, 2, 3, 4, 1, 2, 3, 4]).block_hashes
    assert first != second
    other = make("b", [9, 2, 3, 4, 1, 2, 3, 4]).block_hashes
    assert other[0] != first and other[1] != second
    assert make("c", [1, 2, 3, 4, 1, 2, 3, 5]).block_hashes[0] == first


def test_a_salt_changes_every_hash() -> None:
    plain, salted, again = (make("a", [3] * 8, salt=salt).block_hashes for salt in (None, "s", "s"))
    assert set(plain).isdisjoint(salted) and salted == again
    assert make("a", [3] * 8, salt="").block_hashes == plain


@pytest.mark.parametrize("prompt_length", [1, 3, 4, 5, 8])
@pytest.mark.parametrize("salt", [None, "s"])
def test_hashes_grown_by_output_are_those_of_the_same_tokens_as_a_prompt(prompt_length: int, salt: str | None) -> None:
    tokens = list(range(5, 27))
    request = make("a", tokens[:prompt_length], salt=salt)
    request.output_token_ids = tokens[prompt_length:]
    for number in (1, 3, 5):
        request.extend_hashes(number, 4)
    assert request.block_hashes[:5] == make("b", tokens, salt=salt).block_hashes
    assert request.known_token_ids() == tokens


def test_hashing_can_be_left_out() -> None:
    wire = EngineCoreRequest("a", [3] * 8, sampling_params=SamplingParams())
    assert Request.from_wire(wire, block_size=4, max_model_len=100, seq=0, hash_blocks=False).block_hashes == []
