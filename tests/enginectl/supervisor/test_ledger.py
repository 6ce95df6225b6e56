from __future__ import annotations

import msgspec
import pytest

from engine.codec import Dialect, decode_request, encode_request
from engine.messages import EngineCoreOutput, EngineCoreRequest, SamplingParams
from enginectl.supervisor.ledger import Ledger, NotResumable, rest_of


def asked(ledger: Ledger, tokens: list[int], dialect: Dialect = Dialect.V025, **sampling: object) -> EngineCoreRequest:
    """Adds a request that got these tokens."""
    params = SamplingParams(**{"temperature": 0.0, "max_tokens": 10, **sampling})  # type: ignore[arg-type]
    request = EngineCoreRequest("r", [1, 2, 3], sampling_params=params, client_index=1, priority=4)
    ledger.add("r", 1, encode_request(request, dialect))
    for token in tokens:
        ledger.on_output(EngineCoreOutput("r", [token]))
    return request


def rest(ledger: Ledger, mode: str = "resume", moves_seed: bool = False) -> EngineCoreRequest:
    message = decode_request(rest_of(ledger.items["r"], mode, moves_seed=moves_seed))  # type: ignore[arg-type]
    assert isinstance(message, EngineCoreRequest) and message.sampling_params is not None
    return message


@pytest.mark.parametrize("dialect", [Dialect.V025, Dialect.V032])
def test_the_rest_is_prompt_and_tokens_with_what_is_left_of_them(dialect: Dialect) -> None:
    ledger = Ledger()
    asked(ledger, [7, 8], dialect, min_tokens=3, stop=["x"], prompt_logprobs=2, logprobs=1)
    found = rest(ledger)
    assert found.prompt_token_ids == [1, 2, 3, 7, 8]
    params = found.sampling_params
    assert params is not None
    assert (params.max_tokens, params.min_tokens, params.stop, params.logprobs) == (8, 1, ["x"], 1)
    assert params.prompt_logprobs is None
    assert (found.client_index, found.priority, found.request_id) == (1, 4, "r")
    fields = len(msgspec.msgpack.decode(ledger.items["r"].frames[1]))
    assert len(msgspec.msgpack.decode(rest_of(ledger.items["r"], "resume", moves_seed=False)[1])) == fields


def test_what_had_not_begun_is_asked_as_it_was() -> None:
    ledger = Ledger()
    asked(ledger, [], temperature=0.8)
    assert rest_of(ledger.items["r"], "fail", moves_seed=True) is ledger.items["r"].frames


def test_no_limit_stays_no_limit_and_the_default_is_counted() -> None:
    ledger = Ledger()
    asked(ledger, [5], max_tokens=None)
    params = rest(ledger).sampling_params
    assert params is not None and params.max_tokens is None
    asked(ledger, [5], max_tokens=16)
    params = rest(ledger).sampling_params
    assert params is not None and params.max_tokens == 15


@pytest.mark.parametrize(("moves", "seed"), [(False, 11), (True, 13)])
def test_a_seed_goes_on_where_draws_do_not_know_their_position(moves: bool, seed: int) -> None:
    ledger = Ledger()
    asked(ledger, [5, 6], temperature=0.7, seed=11)
    params = rest(ledger, moves_seed=moves).sampling_params
    assert params is not None and params.seed == seed


@pytest.mark.parametrize(
    ("sampling", "mode"),
    [
        ({"temperature": 0.5}, "fail"),
        ({"presence_penalty": 0.5}, "fail"),
        ({"structured_outputs": msgspec.Raw(msgspec.msgpack.encode({"json": "{}"}))}, "resume"),
    ],
)
def test_what_cannot_go_on(sampling: dict[str, object], mode: str) -> None:
    ledger = Ledger()
    asked(ledger, [5], **sampling)  # type: ignore[arg-type]
    with pytest.raises(NotResumable):
        rest_of(ledger.items["r"], mode, moves_seed=False)  # type: ignore[arg-type]


def test_a_request_that_ended_is_forgotten() -> None:
    ledger = Ledger()
    asked(ledger, [5])
    ledger.on_output(EngineCoreOutput("r", [6], finish_reason=1))
    assert not ledger.items
    ledger.on_output(EngineCoreOutput("r", [7]))
    ledger.end("r")
