"""Frames to structs and back: arrays inline and in frames, dialects, and everything that must be refused by name."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw
from msgspec.msgpack import Ext

from engine import codec, limits
from engine.codec import Dialect, decode_outputs, decode_request, encode_outputs, encode_request
from engine.errors import ProtocolError
from engine.messages import (
    ENGINE_CORE_DEAD,
    AbortIds,
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineDead,
    Logprobs,
    NdArray,
    PrefillStats,
    SamplingParams,
    SchedulerStats,
    StartDPWave,
    UtilityCall,
)
from tests.support import hostile
from tests.support.hostile import ADD, UTILITY, add_body

DIALECTS = [Dialect.V025, Dialect.V032]


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def refused(frames: list[bytes]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode_request(frames)
    return caught.value


def logprobs(tokens: int, k: int) -> Logprobs:
    entries = tokens * (k + 1)
    return Logprobs(
        NdArray("<i4", [tokens, k + 1], bytes(range(4)) * entries),
        NdArray("<f4", [tokens, k + 1], bytes(range(4)) * entries),
        NdArray("<i8", [tokens], bytes(range(8)) * tokens),
    )


def outputs_with(**fields: object) -> EngineCoreOutputs:
    return EngineCoreOutputs(3, [EngineCoreOutput("a", [1, 2], **fields)], SchedulerStats(), 1.5)  # type: ignore[arg-type]


def test_every_kind_of_request_survives() -> None:
    request = EngineCoreRequest("a", [1, 2], sampling_params=SamplingParams(logit_bias={5: -1.0}), client_index=1)
    calls = UtilityCall(1, 2**64 - 1, "ping", [codec.encode_value([1, "x"])])
    for message in (request, AbortIds(["a", "b"]), calls, StartDPWave(3, 1)):
        assert decode_request(encode_request(message)) == message


def test_a_wrong_call_keeps_its_id_and_names_its_method() -> None:
    error = refused([UTILITY, pack([1, 2**63 + 5, "ping", "not a list"])])
    assert (error.call_id, error.client_index) == (2**63 + 5, 1) and str(error).startswith("ping: ")


def test_a_notification_is_not_answered() -> None:
    assert refused([UTILITY, pack([0, -1, "ping", []])]).call_id is None


def test_counts_are_bounded_before_decoding() -> None:
    huge = b"\x94\xa1a\xdd" + (10**7).to_bytes(4, "big") + b"\x01" * 10**7 + b"\xc0\x80"
    tracemalloc.start()
    error = refused([ADD, huge])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "10000000 tokens" in str(error) and error.request_id == "a" and peak < 10**6
    assert "at most" in str(refused([b"\x01", pack(["a"] * (limits.MAX_ABORT_IDS + 1))]))
    assert "frames" in str(refused([ADD, pack(add_body()), *[b""] * limits.MAX_FRAMES]))
    assert "arguments" in str(refused([UTILITY, pack([0, 1, "ping", [0] * (limits.MAX_UTILITY_ARGS + 1)])]))


def test_hostile_messages_raise_nothing_else(tmp_path: Path) -> None:
    """Decoded or ProtocolError, no third thing; and no pickle was loaded."""
    bomb = tmp_path / "bomb"
    refusals = accepted = 0
    for name, frames in hostile.messages(bomb):
        try:
            decode_request(frames)
            accepted += 1
        except ProtocolError as error:
            refusals += 1
            assert len(str(error)) < 500, name
    assert refusals > 1000 and accepted < 100
    assert not bomb.exists()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_outputs_survive(dialect: Dialect) -> None:
    message = outputs_with(
        new_logprobs=logprobs(2, 3),
        new_prompt_logprobs=logprobs(5, 2),
        finish_reason=0,
        stop_reason="text",
        events=[EngineCoreEvent(1, 2.5)],
        trace_headers={"a": "b"},
        prefill_stats=PrefillStats(num_prompt_tokens=8),
        num_nans_in_logits=4,
    )
    message.weight_version = "default" if dialect is Dialect.V032 else None
    frames = encode_outputs(message, dialect)
    assert len(frames) == 1
    assert decode_outputs(frames) == decode_outputs(frames, dialect) == message


def test_the_death_notice() -> None:
    assert isinstance(decode_outputs([ENGINE_CORE_DEAD]), EngineDead)


@pytest.mark.parametrize("frames", [[], [b""], [b"\xc1"], [b"\x91" * 5000], [pack([0, [["a", [1], Ext(1, b"x")]]])],
                                    [pack([0, [["a", [1], [["<i4", [1], 7]] * 3 + [None]]]])]])  # fmt: skip
def test_outputs_that_cannot_be_read(frames: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        decode_outputs(frames)


def test_a_result_is_encoded_inside_its_callers_boundary() -> None:
    assert codec.utility_answer(5, {"a": [1]}).result is not None
    for value in (object(), lambda: None, 10**30):
        with pytest.raises((TypeError, OverflowError)):
            codec.utility_answer(5, value)


def test_values_that_stay_encoded() -> None:
    assert codec.decode_value(codec.encode_value({"a": 1}), dict[str, int]) == {"a": 1}
    with pytest.raises(ProtocolError, match="Expected `int`"):
        codec.decode_value(codec.encode_value("x"), int)
    with pytest.raises(ProtocolError, match="pickle"):
        codec.decode_value(Raw(pack(Ext(1, b"x"))), object)


def test_hostile_messages_under_optimisation(tmp_path: Path) -> None:
    """The same set where every assert is gone."""
    script = (
        "import sys; from pathlib import Path\n"
        "from engine.codec import decode_request\nfrom engine.errors import ProtocolError\n"
        "from tests.support import hostile\nassert False\n"
        "refused = 0\n"
        "for name, frames in hostile.messages(Path(sys.argv[1])):\n"
        "    try: decode_request(frames)\n"
        "    except ProtocolError: refused += 1\n"
        "print(refused)\n"
    )
    bomb = tmp_path / "bomb"
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-O", "-O", "-c", script, str(bomb)], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 1000 and not bomb.exists()


def test_the_codec_imports_no_torch() -> None:
    script = "import sys, engine.codec; print([m for m in ('torch', 'numpy', 'zmq') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
