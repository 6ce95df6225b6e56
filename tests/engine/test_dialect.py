"""Where an output's fields go for each version of a peer, and how the version shows."""

from __future__ import annotations

import msgspec
import pytest

from engine import codec
from engine.codec import Dialect, encode_outputs
from engine.messages import (
    EngineCoreOutput,
    EngineCoreOutputs,
    PrefillStats,
    SchedulerStats,
)
from tests.support.hostile import add_body

DIALECTS = [Dialect.V025, Dialect.V032]


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def outputs_with(**fields: object) -> EngineCoreOutputs:
    return EngineCoreOutputs(3, [EngineCoreOutput("a", [1, 2], **fields)], SchedulerStats(), 1.5)  # type: ignore[arg-type]


def test_the_tail_moves_with_the_dialect() -> None:
    message = outputs_with(prefill_stats=PrefillStats(num_prompt_tokens=8), num_nans_in_logits=4)
    old, new, unknown = (
        msgspec.msgpack.decode(encode_outputs(message, dialect)[0]) for dialect in (*DIALECTS, Dialect.UNKNOWN)
    )
    assert (len(old), len(new), len(unknown)) == (8, 9, 8)
    assert (len(old[1][0]), len(new[1][0]), len(unknown[1][0])) == (13, 18, 9)
    assert old[1][0][10] == new[1][0][11] and old[1][0][10]["num_prompt_tokens"] == 8
    assert new[1][0][9] is None and old[1][0][12] == new[1][0][13] == 4
    assert old[1][0][:9] == new[1][0][:9] == unknown[1][0]


@pytest.mark.parametrize(
    ("fields", "dialect"),
    [(9, Dialect.UNKNOWN), (19, Dialect.UNKNOWN), (20, Dialect.V025), (22, Dialect.V032), (24, Dialect.V032)],
)
def test_dialect_from_an_add(fields: int, dialect: Dialect) -> None:
    assert codec.detect_dialect_from_add(pack((add_body() + [None] * 4)[:fields])) is dialect


@pytest.mark.parametrize("body", [b"", b"\xc0", b"\xdd", b"\xdd\xff\xff\xff", b"x" * 10])
def test_no_dialect_from_junk(body: bytes) -> None:
    assert codec.detect_dialect_from_add(body) is Dialect.UNKNOWN


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("0.25.1", Dialect.V025),
        ("0.32.0+cpu", Dialect.V032),
        ("0.33.1", Dialect.V032),
        ("1.0", Dialect.V032),
        ("", Dialect.UNKNOWN),
        ("dev", Dialect.UNKNOWN),
    ],
)
def test_dialect_from_a_ready_response(version: str, dialect: Dialect) -> None:
    assert codec.detect_dialect_from_ready(version) is dialect
