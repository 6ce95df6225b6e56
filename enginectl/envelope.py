"""Errors and envelopes of the control protocol as bytes and back; both ends use it.

Owns nothing, touches no socket."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

import enginectl.errors as errors
from enginectl.control import ControlReply, ControlRequest, ErrorInfo
from enginectl.errors import CtlError, Exit

MAX_MESSAGE_BYTES = 64 * 1024**2
MAX_TEXT = 20_000
"""Characters of an error that travel; a cause may be a whole traceback."""

_encoder = msgspec.msgpack.Encoder()
_reply_decoder = msgspec.msgpack.Decoder(ControlReply)
_request_decoder = msgspec.msgpack.Decoder(ControlRequest)
_CLASSES: dict[str, type[CtlError]] = {
    kind.id: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CtlError)
}


def pack(value: object) -> Raw:
    """A struct as the `args` or `data` of an envelope. Raises TypeError or ValueError for what msgpack cannot carry."""
    return Raw(_encoder.encode(value))


def encode(message: ControlRequest | ControlReply) -> bytes:
    return _encoder.encode(message)


def decode_request(frame: bytes) -> ControlRequest:
    """Raises msgspec.MsgspecError or RecursionError."""
    return _request_decoder.decode(frame)


def decode_reply(frame: bytes) -> ControlReply:
    """Raises msgspec.MsgspecError or RecursionError."""
    return _reply_decoder.decode(frame)


def error_info(error: CtlError) -> ErrorInfo:
    """An error as the fields that travel."""
    return ErrorInfo(
        id=error.id,
        message=error.message[:MAX_TEXT],
        cause=error.cause[:MAX_TEXT],
        try_=error.try_,
        see=error.see,
        exit=int(error.exit),
    )


def error_from(info: ErrorInfo) -> CtlError:
    """The error of the class that its id names; a plain CtlError with the same fields when it is newer than us."""
    kind = _CLASSES.get(info.id, CtlError)
    try:
        code = Exit(info.exit)
    except ValueError:
        code = Exit.ENGINE_ERROR
    return kind(info.message, cause=info.cause, try_=info.try_, see=info.see, id=info.id, exit=code)


class NoArgs(Struct, kw_only=True):
    """For verbs that take nothing."""
