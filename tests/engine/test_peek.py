"""Reading the head of a body that may be anything: an answer or None, never an exception."""

from __future__ import annotations

import random

import msgspec
import pytest

from engine import limits
from engine.peek import AddHead, CallHead, Cursor, add_head, call_head
from tests.support.hostile import add_body, nested


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.mark.parametrize("request_id", ["", "a", "x" * 31, "x" * 32, "x" * 300, "ä" * 100])
@pytest.mark.parametrize("tokens", [0, 1, 15, 16, 70_000])
def test_the_head_of_an_add(request_id: str, tokens: int) -> None:
    body = pack(add_body(f0=request_id, f1=[1] * tokens))
    assert add_head(body) == AddHead(20, request_id, tokens)
    assert add_head(memoryview(body)[: len(body) // 2 + 400]) == AddHead(20, request_id, tokens)


@pytest.mark.parametrize("call_id", [0, 127, 128, 2**16, 2**32 + 1, 2**64 - 1])
def test_the_head_of_a_call(call_id: int) -> None:
    assert call_head(pack([3, call_id, "ping", object_that_is_wrong()])) == CallHead(3, call_id, "ping")


def object_that_is_wrong() -> object:
    return {"a": [None]}


@pytest.mark.parametrize(
    "body", [b"", b"\xc0", b"\xdc", b"\xdc\x00", b"\x90", pack({"a": 1}), pack("text"), nested(5000)]
)
def test_nothing_can_be_read(body: bytes) -> None:
    assert add_head(body).request_id is None
    assert call_head(body).call_id is None


def test_what_is_too_long_or_no_text_is_not_read() -> None:
    assert add_head(pack(["x" * (limits.MAX_REQUEST_ID_BYTES + 1), [1]])).request_id is None
    assert add_head(b"\x92\xa2\xff\xfe\x90").request_id is None
    assert call_head(pack([0, -1, "ping", []])).call_id is None


def test_a_cursor_stays_where_it_cannot_read() -> None:
    cursor = Cursor(pack(["a", 5]))
    assert cursor.text(10) is None and cursor.unsigned() is None and cursor.at == 0
    assert (cursor.array(), cursor.text(10), cursor.unsigned()) == (2, "a", 5)
    assert cursor.array() is None and cursor.text(10) is None and cursor.unsigned() is None


def test_random_bytes_raise_nothing() -> None:
    noise = random.Random(5)
    for _ in range(3000):
        body = noise.randbytes(noise.randrange(40))
        add_head(body)
        call_head(body)
