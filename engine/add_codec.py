"""The body of an ADD: bytes to EngineCoreRequest, every field typed, nothing in it silently ignored.

Body and buffers in, request out, or ProtocolError with the request's id and client where they can be read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from engine import limits
from engine.errors import ProtocolError
from engine.messages import NIL, EngineCoreRequest, SamplingParams
from engine.peek import Buffer, add_head
from engine.tensors import ArrayReader
from engine.untyped import check_free, find_extension


class _Wire(Struct, array_like=True):
    """EngineCoreRequest with its sampling_params still encoded: unknown keys must be seen."""

    request_id: str
    prompt_token_ids: list[int] | None
    mm_features: Raw = NIL
    sampling_params: Raw = NIL
    pooling_params: Raw = NIL
    arrival_time: float = 0.0
    lora_request: Raw = NIL
    cache_salt: str | None = None
    data_parallel_rank: int | None = None
    prompt_embeds: Raw = NIL
    prompt_is_token_ids: Raw = NIL
    client_index: int = 0
    current_wave: int = 0
    priority: int = 0
    trace_headers: dict[str, str] | None = None
    resumable: bool = False
    external_req_id: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: Raw = NIL
    abort_immediately: bool = False
    session_id: str | None = None
    kv_hints: Raw = NIL


class _ClientPlace(Struct, array_like=True):
    """Reaches position 11 of a body whose other fields are wrong."""

    f0: Raw = NIL
    f1: Raw = NIL
    f2: Raw = NIL
    f3: Raw = NIL
    f4: Raw = NIL
    f5: Raw = NIL
    f6: Raw = NIL
    f7: Raw = NIL
    f8: Raw = NIL
    f9: Raw = NIL
    f10: Raw = NIL
    client_index: int = 0


_WIRE = msgspec.msgpack.Decoder(_Wire)
_CLIENT = msgspec.msgpack.Decoder(_ClientPlace)
_KEYS = msgspec.msgpack.Decoder(dict[str, Raw])
_SAMPLING = msgspec.msgpack.Decoder(SamplingParams)
_KNOWN_KEYS = frozenset(field.encode_name for field in msgspec.structs.fields(SamplingParams))
_FREE_KEYS = tuple(f.encode_name for f in msgspec.structs.fields(SamplingParams) if f.type is Raw)
_FREE_FIELDS = ("mm_features", "pooling_params", "lora_request", "prompt_embeds", "prompt_is_token_ids",
                "reasoning_parser_kwargs", "kv_hints")  # fmt: skip
_TENSOR_FIELDS = ("mm_features", "prompt_embeds")
_ANSWERED_WHOLE = (RecursionError, MemoryError)


def decode_add(frames: Sequence[Buffer]) -> EngineCoreRequest:
    """`frames`: body, then tensor buffers. Raises ProtocolError."""
    body = frames[0]
    try:
        return _decode(frames)
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, *_ANSWERED_WHOLE) as error:
        raise _with_id(describe(error, body), body) from None
    except ProtocolError as error:
        raise _with_id(str(error), body) from None


def _decode(frames: Sequence[Buffer]) -> EngineCoreRequest:
    body = frames[0]
    _check_sizes(body)
    wire = _WIRE.decode(body)
    sampling = _decode_sampling(wire.sampling_params)
    for name in _FREE_FIELDS:
        raw = getattr(wire, name)
        if raw is not NIL and raw != NIL:
            _check_free_field(name, raw, frames)
    if len(frames) > 1 and all(getattr(wire, name) == NIL for name in _TENSOR_FIELDS):
        raise ProtocolError(f"{len(frames) - 1} frames after the body, and nothing in it refers to them")
    fields = msgspec.structs.astuple(wire)
    return EngineCoreRequest(*fields[:3], sampling, *fields[4:])  # type: ignore[call-arg]  # a starred tuple has no length


def _check_sizes(body: Buffer) -> None:
    if len(body) > limits.MAX_BODY_BYTES:
        raise ProtocolError(f"body of {len(body)} bytes, at most {limits.MAX_BODY_BYTES} are read")
    tokens = add_head(body).prompt_tokens
    if tokens is not None and tokens > limits.MAX_PROMPT_TOKENS:
        raise ProtocolError(f"a prompt of {tokens} tokens, at most {limits.MAX_PROMPT_TOKENS} are read")


def _check_free_field(name: str, raw: Raw, frames: Sequence[Buffer]) -> None:
    value = check_free(raw, name, tensors=name in _TENSOR_FIELDS)
    if name == "prompt_embeds":
        ArrayReader(frames).array(value)


def _decode_sampling(raw: Raw) -> SamplingParams | None:
    if raw == NIL:
        return None
    try:
        return _decode_map(raw)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"sampling_params: {describe(error, raw)}") from None


def _decode_map(raw: Raw) -> SamplingParams:
    keys = _KEYS.decode(raw)
    if len(keys) > limits.MAX_SAMPLING_KEYS:
        raise ProtocolError(f"sampling_params: {len(keys)} keys, at most {limits.MAX_SAMPLING_KEYS} are read")
    for name in keys.keys() - _KNOWN_KEYS:
        if check_free(keys[name], f"sampling_params.{name[:60]}"):
            raise ProtocolError(f"sampling_params: {name[:60]!r} is not known here and asks for something")
    for name in _FREE_KEYS:
        if name in keys:
            check_free(keys[name], f"sampling_params.{name}")
    return _SAMPLING.decode(raw)


def _with_id(text: str, body: Buffer) -> ProtocolError:
    """`client_index` is -1 where it cannot be read."""
    return ProtocolError(text, request_id=add_head(body).request_id, client_index=_client(body))


def _client(body: Buffer) -> int:
    try:
        return _CLIENT.decode(body).client_index
    except (msgspec.MsgspecError, ValueError, OverflowError, *_ANSWERED_WHOLE):
        return -1


def describe(error: BaseException, body: Buffer | Raw) -> str:
    """What was wrong, without any of the content."""
    if isinstance(error, RecursionError):
        return f"nested too deeply, at most {limits.MAX_DEPTH} levels are read"
    if isinstance(error, MemoryError):
        return "no memory to decode it"
    extension = (
        find_extension(body) if "ext" in str(error) and memoryview(body).nbytes <= limits.MAX_BODY_BYTES else None
    )
    return f"{error}; {extension}" if extension is not None and extension not in str(error) else str(error)
