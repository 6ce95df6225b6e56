"""Every captured frame decodes into typed structs, and encodes again to a frame that says the same."""

from __future__ import annotations

import msgspec
import pytest

from engine import codec
from engine.codec import Dialect
from engine.messages import EngineCoreOutputs, EngineCoreRequest, EngineCoreRequestType, SamplingParams
from tests.support.golden import VERSIONS, captured

DEFAULTS = {field.encode_name: field.default for field in msgspec.structs.fields(SamplingParams)} | {
    "_all_stop_token_ids": []
}
DIALECTS = {"0.25.1": Dialect.V025, "0.32.0": Dialect.V032}


def plain(frame: bytes) -> object:
    return msgspec.msgpack.decode(frame, ext_hook=lambda code, data: (code, bytes(data)))


def without_unknown(theirs: object, ours: object) -> object:
    """What they sent, less the map keys and trailing elements that we do not write."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {key: without_unknown(theirs[key], ours[key]) for key in theirs if key in ours}
    if isinstance(theirs, list) and isinstance(ours, list):
        return [without_unknown(a, b) for a, b in zip(theirs, ours, strict=False)]
    return theirs


def without_added(ours: object, theirs: object) -> object:
    """What we sent, less the map keys that are ours."""
    return without_unknown(ours, theirs)


@pytest.mark.parametrize("version", VERSIONS)
def test_inputs(version: str) -> None:
    dialect = DIALECTS[version]
    seen = set()
    for message in captured(version, "input"):
        decoded = codec.decode_request(message.frames)
        again = codec.encode_request(decoded, dialect)
        assert codec.decode_request(again) == decoded, message.line
        seen.add(message.frames[0])
        if isinstance(decoded, EngineCoreRequest):
            theirs, ours = plain(message.frames[1]), plain(again[1])
            assert len(theirs) == len(ours)
            assert theirs[:3] + theirs[4:] == ours[:3] + ours[4:], message.line
            assert {key: theirs[3][key] for key in ours[3]} == ours[3], message.line
            assert {key: DEFAULTS[key] for key in theirs[3].keys() - ours[3].keys()} == {
                key: theirs[3][key] for key in theirs[3].keys() - ours[3].keys()
            }, message.line
            assert codec.detect_dialect_from_add(message.frames[1]) is dialect
        else:
            assert again == message.frames, message.line
    assert seen == {kind.value for kind in (EngineCoreRequestType.ADD, EngineCoreRequestType.ABORT,
                                            EngineCoreRequestType.UTILITY)}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_outputs(version: str) -> None:
    dialect = DIALECTS[version]
    buffer = bytearray()
    logprobs = prompt_logprobs = answers = finished = 0
    for message in captured(version, "output"):
        decoded = codec.decode_outputs(message.frames)
        assert isinstance(decoded, EngineCoreOutputs)
        assert codec.decode_outputs(message.frames, dialect) == decoded
        again = codec.encode_outputs(decoded, dialect, buffer)
        assert codec.decode_outputs(again) == decoded, message.line
        theirs, ours = plain(message.frames[0]), plain(bytes(again[0]))
        assert len(theirs) == len(ours)
        assert without_unknown(theirs, ours) == without_added(ours, theirs), message.line
        answers += decoded.utility_output is not None
        for output in decoded.outputs:
            finished += output.finished
            logprobs += output.new_logprobs is not None
            prompt_logprobs += output.new_prompt_logprobs is not None
    assert answers == 7 and finished >= 13 and logprobs >= 5 and prompt_logprobs >= 1


@pytest.mark.parametrize("version", VERSIONS)
def test_logprobs_hold_the_numbers(version: str) -> None:
    for message in captured(version, "output"):
        decoded = codec.decode_outputs(message.frames)
        assert isinstance(decoded, EngineCoreOutputs)
        for output in decoded.outputs:
            for found in filter(None, (output.new_logprobs, output.new_prompt_logprobs)):
                rows, columns = found.token_ids.shape
                assert found.logprobs.shape == [rows, columns] and found.ranks.shape == [rows]
                assert len(found.token_ids.data) == rows * columns * 4 == len(found.logprobs.data)
            if output.new_logprobs is not None:
                first = int.from_bytes(output.new_logprobs.token_ids.data[:4], "little")
                assert first == output.new_token_ids[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_handshake(version: str) -> None:
    (hello,) = captured(version, "hello")
    (ready,) = captured(version, "ready")
    for message, status in ((hello, "HELLO"), (ready, "READY")):
        decoded = codec.decode_status(message.frames[0])
        assert (decoded.status, decoded.local, decoded.headless) == (status, False, True)
        assert codec.encode_message(decoded) == message.frames[0]
    (init,) = captured(version, "init")
    assert codec.encode_message(codec.decode_init(init.frames[0])) == init.frames[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_ready_response(version: str) -> None:
    (message,) = captured(version, "ready_response")
    decoded = codec.decode_ready_response(message.frames[0])
    assert decoded.vllm_version == version and decoded.block_size == 128
    assert codec.detect_dialect_from_ready(decoded.vllm_version) is DIALECTS[version]
    theirs, ours = plain(message.frames[0]), plain(codec.encode_message(decoded))
    assert isinstance(theirs, dict) and isinstance(ours, dict)
    assert {key: ours[key] for key in theirs} == theirs
