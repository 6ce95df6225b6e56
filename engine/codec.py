"""Frames to messages and back: the only module that knows what the bytes look like.

Frames in, typed structs out, or ProtocolError with whatever id can still be read; structs in, frames out. No socket,
no thread, nothing kept between calls. Never unpickles; nothing a peer sends can raise anything but ProtocolError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from engine import limits
from engine.add_codec import decode_add, describe
from engine.dialect import (
    ADD_FIELDS_025,
    Dialect,
    Outputs032,
    detect_dialect_from_add,
    detect_dialect_from_ready,
    dialect_of_outputs,
    forced_dialect,
    from_032,
    outputs_row,
)
from engine.errors import ProtocolError
from engine.messages import (
    ENGINE_CORE_DEAD,
    AbortIds,
    EngineCoreOutputs,
    EngineCoreReadyResponse,
    EngineCoreRequest,
    EngineCoreRequestType,
    EngineDead,
    EngineHandshakeMetadata,
    HandshakeStatus,
    StartDPWave,
    UtilityCall,
    UtilityOutput,
    UtilityResult,
)
from engine.peek import Buffer, call_head
from engine.tensors import ArrayReader, ArrayWriter, refuse_or_keep
from engine.untyped import check_free

__all__ = [
    "Dialect",
    "ToEngine",
    "decode_init",
    "decode_outputs",
    "decode_ready_response",
    "decode_request",
    "decode_status",
    "decode_value",
    "detect_dialect_from_add",
    "detect_dialect_from_ready",
    "encode_message",
    "encode_outputs",
    "encode_request",
    "encode_value",
    "forced_dialect",
    "utility_answer",
    "utility_failure",
]

ToEngine: TypeAlias = EngineCoreRequest | AbortIds | UtilityCall | StartDPWave
T = TypeVar("T")
S = TypeVar("S", bound=Struct)

_ABORT = msgspec.msgpack.Decoder(list[str])
_CALL = msgspec.msgpack.Decoder(UtilityCall)
_WAVE = msgspec.msgpack.Decoder(StartDPWave)
_ENCODER = msgspec.msgpack.Encoder()
UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError, MemoryError)


# ---------------------------------------------------------------- frontend -> engine


def decode_request(frames: Sequence[Buffer]) -> ToEngine:
    """One message from an input socket: type byte, body, buffers. Raises ProtocolError."""
    if len(frames) < 2 or len(frames) > limits.MAX_FRAMES:
        raise ProtocolError(f"a request has 2 to {limits.MAX_FRAMES} frames, this has {len(frames)}")
    kind = bytes(frames[0][:2])
    body = frames[1]
    if kind == EngineCoreRequestType.ADD.value:
        return decode_add(frames[1:])
    if kind == EngineCoreRequestType.UTILITY.value:
        return _decode_call(frames)
    if kind == EngineCoreRequestType.ABORT.value:
        return _decode_abort(frames)
    if kind == EngineCoreRequestType.START_DP_WAVE.value:
        return _decode_typed(_WAVE, body, "START_DP_WAVE")
    raise ProtocolError(f"request type {kind.hex() or 'empty'} is not known")


def _decode_typed(decoder: msgspec.msgpack.Decoder[T], body: Buffer, what: str) -> T:
    if len(body) > limits.MAX_BODY_BYTES:
        raise ProtocolError(f"{what}: body of {len(body)} bytes, at most {limits.MAX_BODY_BYTES} are read")
    try:
        return decoder.decode(body)
    except UNREADABLE as error:
        raise ProtocolError(f"{what}: {describe(error, body)}") from None


def _decode_abort(frames: Sequence[Buffer]) -> AbortIds:
    if len(frames) > 2:
        raise ProtocolError(f"ABORT has 2 frames, this has {len(frames)}")
    ids = _decode_typed(_ABORT, frames[1], "ABORT")
    if len(ids) > limits.MAX_ABORT_IDS:
        raise ProtocolError(f"ABORT names {len(ids)} requests, at most {limits.MAX_ABORT_IDS} at once")
    return AbortIds(ids)


def _decode_call(frames: Sequence[Buffer]) -> UtilityCall:
    body = frames[1]
    try:
        if len(frames) > 2:
            raise ProtocolError(f"no method takes tensors, and {len(frames) - 2} frames of them came")
        call = _decode_typed(_CALL, body, "UTILITY")
        _check_call(call)
        return call
    except ProtocolError as error:
        head = call_head(body)
        name = f"{head.method}: " if head.method is not None else ""
        client = -1 if head.client_index is None else head.client_index
        raise ProtocolError(f"{name}{error}", call_id=head.call_id, client_index=client) from None


def _check_call(call: UtilityCall) -> None:
    if not 0 <= call.call_id < 2**64:
        raise ProtocolError(f"call id {call.call_id} is not an unsigned 64-bit number")
    if len(call.method.encode(errors="replace")) > limits.MAX_METHOD_NAME_BYTES:
        raise ProtocolError(f"a method name of {len(call.method)} characters is not allowed")
    if len(call.args) > limits.MAX_UTILITY_ARGS:
        raise ProtocolError(f"{len(call.args)} arguments, at most {limits.MAX_UTILITY_ARGS} are read")
    if sum(memoryview(argument).nbytes for argument in call.args) > limits.MAX_FREE_FIELD_BYTES:
        raise ProtocolError(f"more than {limits.MAX_FREE_FIELD_BYTES} bytes of arguments")
    for place, argument in enumerate(call.args):
        check_free(argument, f"argument {place}")


def encode_request(message: ToEngine, dialect: Dialect = Dialect.V025) -> list[bytes]:
    """Frames for an input socket, type byte first."""
    if isinstance(message, EngineCoreRequest):
        row = msgspec.structs.astuple(message)
        body = _ENCODER.encode(row if dialect is Dialect.V032 else row[:ADD_FIELDS_025])
        return [EngineCoreRequestType.ADD.value, body]
    if isinstance(message, AbortIds):
        return [EngineCoreRequestType.ABORT.value, _ENCODER.encode(message.request_ids)]
    if isinstance(message, UtilityCall):
        return [EngineCoreRequestType.UTILITY.value, _ENCODER.encode(message)]
    return [EngineCoreRequestType.START_DP_WAVE.value, _ENCODER.encode(message)]


# ---------------------------------------------------------------- engine -> frontend


def encode_outputs(
    outputs: EngineCoreOutputs, dialect: Dialect = Dialect.V025, buffer: bytearray | None = None
) -> list[bytes | bytearray]:
    """Body, written into `buffer` when one is given, then one frame for each long array.
    Raises TypeError when something in it cannot travel, BufferError when somebody still reads `buffer`."""  # fmt: skip
    writer = ArrayWriter()
    encoder = msgspec.msgpack.Encoder(enc_hook=writer.enc_hook)
    row = outputs_row(outputs, dialect)
    if buffer is None:
        return [encoder.encode(row), *writer.frames]
    encoder.encode_into(row, buffer)
    return [buffer, *writer.frames]


def decode_outputs(frames: Sequence[Buffer], dialect: Dialect | None = None) -> EngineCoreOutputs | EngineDead:
    """One message from an output socket. Without a dialect the message's own length tells. Raises ProtocolError."""
    if not 1 <= len(frames) <= limits.MAX_OUTPUT_FRAMES:
        raise ProtocolError(f"outputs in {len(frames)} frames")
    body = frames[0]
    if len(frames) == 1 and body == ENGINE_CORE_DEAD:
        return EngineDead()
    layout = dialect if dialect not in (None, Dialect.UNKNOWN) else dialect_of_outputs(body)
    reader = ArrayReader(frames)
    try:
        if layout is Dialect.V032:
            return from_032(_outputs_decoder(Outputs032, reader).decode(body))
        return _outputs_decoder(EngineCoreOutputs, reader).decode(body)
    except UNREADABLE as error:
        raise ProtocolError(f"outputs: {describe(error, body)}") from None


def _outputs_decoder(kind: type[S], reader: ArrayReader) -> msgspec.msgpack.Decoder[S]:
    return msgspec.msgpack.Decoder(kind, dec_hook=reader.dec_hook, ext_hook=refuse_or_keep)


def utility_answer(call_id: int, value: object) -> UtilityOutput:
    """A call's result, encoded here and now, inside the caller's error boundary. Raises TypeError, ValueError,
    OverflowError or RecursionError for what cannot travel."""
    return UtilityOutput(call_id, None, UtilityResult(value=Raw(_ENCODER.encode(value))))


def utility_failure(call_id: int, text: str) -> UtilityOutput:
    return UtilityOutput(call_id, text, None)


# ---------------------------------------------------------------- handshake and single values


def encode_message(message: HandshakeStatus | EngineHandshakeMetadata | EngineCoreReadyResponse) -> bytes:
    """The one frame of HELLO, READY, INIT or a ready response."""
    return _ENCODER.encode(message)


def decode_status(frame: Buffer) -> HandshakeStatus:
    """HELLO or READY. Raises ProtocolError."""
    return _decode_message(HandshakeStatus, frame, "HELLO or READY")


def decode_init(frame: Buffer) -> EngineHandshakeMetadata:
    """INIT; at least one input, as many outputs. Raises ProtocolError naming what is wrong."""
    init = _decode_message(EngineHandshakeMetadata, frame, "INIT")
    addresses = init.addresses
    if not addresses.inputs or len(addresses.inputs) != len(addresses.outputs):
        raise ProtocolError(f"INIT: {len(addresses.inputs)} input addresses and {len(addresses.outputs)} output "
                            "addresses; a client has one of each")  # fmt: skip
    if len(addresses.inputs) > limits.MAX_CLIENTS:
        raise ProtocolError(f"INIT: {len(addresses.inputs)} clients, at most {limits.MAX_CLIENTS} are served")
    return init


def decode_ready_response(frame: Buffer) -> EngineCoreReadyResponse:
    """Raises ProtocolError."""
    return _decode_message(EngineCoreReadyResponse, frame, "ready response")


def _decode_message(kind: type[S], frame: Buffer, what: str) -> S:
    if len(frame) > limits.MAX_READY_RESPONSE_BYTES:
        raise ProtocolError(f"{what}: {len(frame)} bytes, at most {limits.MAX_READY_RESPONSE_BYTES} are read")
    try:
        return msgspec.msgpack.decode(frame, type=kind)
    except UNREADABLE as error:
        raise ProtocolError(f"{what}: {describe(error, frame)}") from None


def encode_value(value: object) -> Raw:
    """An argument or result for a field that stays encoded. Raises TypeError."""
    return Raw(_ENCODER.encode(value))


def decode_value(raw: Raw, kind: type[T]) -> T:
    """The typed value of such a field. Raises ProtocolError."""
    try:
        return msgspec.msgpack.decode(raw, type=kind, ext_hook=refuse_or_keep)
    except UNREADABLE as error:
        raise ProtocolError(describe(error, raw)) from None
