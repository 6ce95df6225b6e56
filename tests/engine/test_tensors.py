"""Arrays inline and in frames of their own, their headers checked before use."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.msgpack import Ext

from engine.codec import Dialect, decode_outputs, decode_request, encode_outputs
from engine.errors import ProtocolError
from engine.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    Logprobs,
    NdArray,
    SchedulerStats,
)
from engine.tensors import ArrayReader, ArrayWriter
from tests.support.hostile import ADD, add_body

DIALECTS = [Dialect.V025, Dialect.V032]


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def logprobs(tokens: int, k: int) -> Logprobs:
    entries = tokens * (k + 1)
    return Logprobs(
        NdArray("<i4", [tokens, k + 1], bytes(range(4)) * entries),
        NdArray("<f4", [tokens, k + 1], bytes(range(4)) * entries),
        NdArray("<i8", [tokens], bytes(range(8)) * tokens),
    )


def outputs_with(**fields: object) -> EngineCoreOutputs:
    return EngineCoreOutputs(3, [EngineCoreOutput("a", [1, 2], **fields)], SchedulerStats(), 1.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tensor", "complaint"),
    [
        (["float32", [2], Ext(3, b"1234")], "needs 8 bytes, has 4"),
        (["object", [1], Ext(3, b"1234")], "dtype"),
        (["O", [1], Ext(3, b"1234")], "dtype"),
        (["float32", [1], 2], "frame 2"),
        (["float32", [1], 0], "frame 0"),
        (["float32", [-1], 1], "sizes"),
        (["float32", [True], 1], "sizes"),
        (["float32", [1] * 9, 1], "shape"),
        (["float32", [1], "x"], "extension type 3 or a frame number"),
        (["float32", [1]], r"\[dtype, shape, data\]"),
        ("x", r"\[dtype, shape, data\]"),
    ],
)
def test_tensor_headers_are_checked(tensor: object, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode_request([ADD, pack(add_body(f9=tensor)), b"12345678"])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_long_arrays_travel_in_frames_of_their_own(dialect: Dialect) -> None:
    message = outputs_with(new_logprobs=logprobs(20, 3), new_prompt_logprobs=logprobs(64, 0))
    message.weight_version = "default" if dialect is Dialect.V032 else None
    buffer = bytearray(b"left over from before" * 100)
    frames = encode_outputs(message, dialect, buffer)
    assert frames[0] is buffer
    assert [len(frame) for frame in frames[1:]] == [320, 320, 256, 256, 512]
    body = msgspec.msgpack.decode(bytes(buffer), ext_hook=lambda code, data: (code, len(data)))
    assert body[1][0][2] == [["<i4", [20, 4], 1], ["<f4", [20, 4], 2], ["<i8", [20], (3, 160)], None]
    assert body[1][0][3] == [["<i4", [64, 1], 3], ["<f4", [64, 1], 4], ["<i8", [64], 5], None]
    assert decode_outputs(frames) == message


def test_five_prompt_logprobs_elements_are_accepted() -> None:
    array = ["int32", [1], Ext(3, b"1234")]
    body = [0, [["a", [1], None, [array, array, array, None, None]]], None, 0.0]
    found = decode_outputs([pack(body)])
    assert isinstance(found, EngineCoreOutputs) and found.outputs[0].new_prompt_logprobs is not None


def test_an_array_without_dimensions_stays_inline() -> None:
    writer = ArrayWriter()
    written = writer.enc_hook(NdArray("<f8", [], b"12345678"))
    assert isinstance(written, list) and isinstance(written[2], Ext) and not writer.frames


def test_nothing_but_arrays_is_written_or_read() -> None:
    with pytest.raises(NotImplementedError):
        ArrayWriter().enc_hook(object())
    with pytest.raises(NotImplementedError):
        ArrayReader([]).dec_hook(int, 5)
