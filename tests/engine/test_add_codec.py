"""The body of an ADD: what may be missing, what must not be ignored, whose id an error carries."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.msgpack import Ext

from engine.codec import Dialect, decode_request
from engine.errors import ProtocolError
from engine.messages import (
    EngineCoreRequest,
    SamplingParams,
)
from tests.support import hostile
from tests.support.hostile import ADD, add_body

DIALECTS = [Dialect.V025, Dialect.V032]


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def refused(frames: list[bytes]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode_request(frames)
    return caught.value


def test_a_body_may_stop_after_position_8() -> None:
    request = decode_request([ADD, pack(add_body()[:9])])
    assert isinstance(request, EngineCoreRequest)
    assert (request.client_index, request.priority, request.abort_immediately) == (0, 0, False)


def test_extra_trailing_elements_are_ignored() -> None:
    assert decode_request([ADD, pack([*add_body(), None, None, "new"])]) == decode_request([ADD, pack(add_body())])


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}, b""])
def test_unknown_sampling_keys_that_change_nothing_are_ignored(value: object) -> None:
    request = decode_request([ADD, pack(add_body(f3={"max_tokens": 2, "unheard_of": value}))])
    assert isinstance(request, EngineCoreRequest) and request.sampling_params == SamplingParams(max_tokens=2)


@pytest.mark.parametrize("value", [True, 1, 0.1, "x", [0], {"a": None}])
def test_unknown_sampling_keys_that_ask_for_something_are_refused_by_name(value: object) -> None:
    error = refused([ADD, pack(add_body(f3={"unheard_of": value}))])
    assert "unheard_of" in str(error) and error.request_id == hostile.REQUEST_ID


def test_a_wrong_request_keeps_its_id_and_client() -> None:
    error = refused([ADD, pack(add_body(f1="not a list", f11=2))])
    assert (error.request_id, error.client_index) == (hostile.REQUEST_ID, 2)
    error = refused([ADD, pack(add_body(f11=2))[:30]])
    assert (error.request_id, error.client_index) == (hostile.REQUEST_ID, -1)


@pytest.mark.parametrize(("code", "name"), [(1, "pickle"), (2, "cloudpickle")])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 5, 9, 11, 18])
def test_pickles_in_a_request_are_refused_by_name(code: int, name: str, place: int) -> None:
    body = pack(add_body(**{f"f{place}": Ext(code, b"cos\nsystem\n")}))
    assert f"extension type {code} ({name})" in str(refused([ADD, body]))
