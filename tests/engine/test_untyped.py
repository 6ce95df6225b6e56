"""Fields of free shape: bounded depth and size, and no extension that has no place."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw
from msgspec.msgpack import Ext

from engine import limits
from engine.codec import Dialect, decode_request
from engine.errors import ProtocolError
from engine.messages import (
    EngineCoreRequest,
)
from engine.untyped import check_free, find_extension
from tests.support import hostile
from tests.support.hostile import ADD, UTILITY, add_body

DIALECTS = [Dialect.V025, Dialect.V032]


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def refused(frames: list[bytes]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode_request(frames)
    return caught.value


@pytest.mark.parametrize("depth", [limits.MAX_DEPTH + 1, 500, 5_000, 200_000])
def test_depth_is_bounded(depth: int) -> None:
    body = b"\x94\x00\x07\xa4ping\x91" + hostile.nested(depth)
    error = refused([UTILITY, body])
    assert "nested too deeply" in str(error) and error.call_id == 7


@pytest.mark.parametrize(("code", "name"), [(1, "pickle"), (2, "cloudpickle")])
def test_pickles_in_a_call_are_refused_by_name(code: int, name: str) -> None:
    error = refused([UTILITY, pack([0, 5, "ping", [[{"a": Ext(code, b"x")}]]])])
    assert f"extension type {code} ({name})" in str(error) and error.call_id == 5


def test_raw_bytes_only_where_a_tensor_is_expected() -> None:
    assert "no tensor is expected" in str(refused([UTILITY, pack([0, 5, "ping", [Ext(3, b"x")]])]))
    assert "no tensor is expected" in str(refused([ADD, pack(add_body(f4=Ext(3, b"x")))]))
    request = decode_request([ADD, pack(add_body(f9=["float32", [1], Ext(3, b"1234")]))])
    assert isinstance(request, EngineCoreRequest)


def test_size_is_bounded() -> None:
    with pytest.raises(ProtocolError, match=f"extra_args: more than {limits.MAX_FREE_FIELD_BYTES}"):
        check_free(Raw(pack("x" * limits.MAX_FREE_FIELD_BYTES)), "extra_args")


def test_the_plain_value_comes_back() -> None:
    assert check_free(Raw(pack({"a": [1, None]})), "x") == {"a": [1, None]}


def test_an_extension_is_found_for_the_error_text() -> None:
    assert find_extension(pack([1, {"a": Ext(2, b"x")}])) == "extension type 2 (cloudpickle) is never accepted"
    assert find_extension(pack([1])) is None and find_extension(b"\xc1") is None
