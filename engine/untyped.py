"""Fields whose shape is free (utility arguments, extra_args, ...): bounded in bytes and depth, free of pickles.

Raw bytes in; nothing out, or ProtocolError naming the field."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from engine import limits
from engine.errors import ProtocolError
from engine.peek import Buffer
from engine.tensors import PICKLES, RawBytes, refuse_or_keep


def check_free(raw: Raw, what: str, *, tensors: bool = False) -> object:
    """The plain value. Raises ProtocolError when it is too long, too deep, or holds an extension that has no place."""
    if memoryview(raw).nbytes > limits.MAX_FREE_FIELD_BYTES:
        raise ProtocolError(f"{what}: more than {limits.MAX_FREE_FIELD_BYTES} bytes")
    try:
        value = msgspec.msgpack.decode(raw, ext_hook=refuse_or_keep)
    except (RecursionError, MemoryError):
        raise ProtocolError(f"{what}: nested too deeply, at most {limits.MAX_DEPTH} levels are read") from None
    except (msgspec.MsgspecError, ValueError, TypeError) as error:
        raise ProtocolError(f"{what}: {error}") from None
    _check_depth(value, what, tensors)
    return value


def _check_depth(value: object, what: str, tensors: bool) -> None:
    layer = [value]
    for _ in range(limits.MAX_DEPTH):
        below: list[object] = []
        for item in layer:
            if isinstance(item, list):
                below.extend(item)
            elif isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, RawBytes) and not tensors:
                raise ProtocolError(f"{what}: extension type 3 (raw bytes) where no tensor is expected")
        if not below:
            return
        layer = below
    raise ProtocolError(f"{what}: nested too deeply, at most {limits.MAX_DEPTH} levels are read")


def find_extension(body: Buffer | Raw) -> str | None:
    """Says which extension type a body holds that it should not. For error texts only."""
    found: list[str] = []

    def note(code: int, data: memoryview) -> None:
        name = PICKLES.get(code)
        found.append(f"extension type {code} ({name}) is never accepted" if name else f"extension type {code}")

    try:
        msgspec.msgpack.decode(body, ext_hook=note)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, MemoryError):
        pass  # what is wrong with it otherwise is told by the caller
    return found[0] if found else None
