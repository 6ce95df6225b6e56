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


# ---------------------------------------------------------------- requests


def test_every_kind_of_request_survives() -> None:
    request = EngineCoreRequest("a", [1, 2], sampling_params=SamplingParams(logit_bias={5: -1.0}), client_index=1)
    calls = UtilityCall(1, 2**64 - 1, "ping", [codec.encode_value([1, "x"])])
    for message in (request, AbortIds(["a", "b"]), calls, StartDPWave(3, 1)):
        assert decode_request(encode_request(message)) == message


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


def test_a_wrong_call_keeps_its_id_and_names_its_method() -> None:
    error = refused([UTILITY, pack([1, 2**63 + 5, "ping", "not a list"])])
    assert (error.call_id, error.client_index) == (2**63 + 5, 1) and str(error).startswith("ping: ")


def test_a_notification_is_not_answered() -> None:
    assert refused([UTILITY, pack([0, -1, "ping", []])]).call_id is None


@pytest.mark.parametrize(("code", "name"), [(1, "pickle"), (2, "cloudpickle")])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 5, 9, 11, 18])
def test_pickles_in_a_request_are_refused_by_name(code: int, name: str, place: int) -> None:
    body = pack(add_body(**{f"f{place}": Ext(code, b"cos\nsystem\n")}))
    assert f"extension type {code} ({name})" in str(refused([ADD, body]))


@pytest.mark.parametrize(("code", "name"), [(1, "pickle"), (2, "cloudpickle")])
def test_pickles_in_a_call_are_refused_by_name(code: int, name: str) -> None:
    error = refused([UTILITY, pack([0, 5, "ping", [[{"a": Ext(code, b"x")}]]])])
    assert f"extension type {code} ({name})" in str(error) and error.call_id == 5


def test_raw_bytes_only_where_a_tensor_is_expected() -> None:
    assert "no tensor is expected" in str(refused([UTILITY, pack([0, 5, "ping", [Ext(3, b"x")]])]))
    assert "no tensor is expected" in str(refused([ADD, pack(add_body(f4=Ext(3, b"x")))]))
    request = decode_request([ADD, pack(add_body(f9=["float32", [1], Ext(3, b"1234")]))])
    assert isinstance(request, EngineCoreRequest)


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


@pytest.mark.parametrize("depth", [limits.MAX_DEPTH + 1, 500, 5_000, 200_000])
def test_depth_is_bounded(depth: int) -> None:
    body = b"\x94\x00\x07\xa4ping\x91" + hostile.nested(depth)
    error = refused([UTILITY, body])
    assert "nested too deeply" in str(error) and error.call_id == 7


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


# ---------------------------------------------------------------- outputs


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


# ---------------------------------------------------------------- dialects


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


# ---------------------------------------------------------------- optimised, and imports


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
