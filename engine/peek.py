"""Reads the first fields of a msgpack body without decoding it: enough to answer a message that is otherwise wrong.

Bytes in, small values or None out; never raises, never allocates more than one id, never recurses."""

from __future__ import annotations

from dataclasses import dataclass

from engine import limits

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class Cursor:
    """A place in a body. Every reader returns None, and stays where it is, when the next value is something else."""

    body: Buffer
    at: int = 0

    def _number(self, start: int, size: int) -> int | None:
        chunk = self.body[start : start + size]
        return int.from_bytes(chunk, "big") if len(chunk) == size else None

    def _length(self, short: range, long: dict[int, int]) -> tuple[int, int] | None:
        """(length, bytes of header) of a string or array. `long` maps a marker to the size of its length field."""
        if self.at >= len(self.body):
            return None
        marker = self.body[self.at]
        if marker in short:
            return marker - short.start, 1
        if marker not in long:
            return None
        size = self._number(self.at + 1, long[marker])
        return None if size is None else (size, 1 + long[marker])

    def array(self) -> int | None:
        """How many elements the array that starts here declares."""
        found = self._length(range(0x90, 0xA0), {0xDC: 2, 0xDD: 4})
        if found is None:
            return None
        self.at += found[1]
        return found[0]

    def text(self, max_bytes: int) -> str | None:
        found = self._length(range(0xA0, 0xC0), {0xD9: 1, 0xDA: 2, 0xDB: 4})
        if found is None or found[0] > max_bytes:
            return None
        start = self.at + found[1]
        raw = bytes(self.body[start : start + found[0]])
        if len(raw) != found[0]:
            return None
        try:
            value = raw.decode()
        except UnicodeDecodeError:
            return None
        self.at = start + found[0]
        return value

    def unsigned(self) -> int | None:
        if self.at >= len(self.body):
            return None
        marker = self.body[self.at]
        if marker < 0x80:
            self.at += 1
            return marker
        size = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(marker)
        value = None if size is None else self._number(self.at + 1, size)
        if value is not None and size is not None:
            self.at += 1 + size
        return value


@dataclass(frozen=True, slots=True)
class AddHead:
    """`fields` is the declared length of the body's array; the rest is None where it cannot be read."""

    fields: int | None
    request_id: str | None
    prompt_tokens: int | None


@dataclass(frozen=True, slots=True)
class CallHead:
    client_index: int | None
    call_id: int | None
    method: str | None


def add_head(body: Buffer) -> AddHead:
    cursor = Cursor(body)
    fields = cursor.array()
    request_id = cursor.text(limits.MAX_REQUEST_ID_BYTES) if fields else None
    prompt_tokens = cursor.array() if request_id is not None else None
    return AddHead(fields, request_id, prompt_tokens)


def call_head(body: Buffer) -> CallHead:
    cursor = Cursor(body)
    client_index = cursor.unsigned() if cursor.array() else None
    call_id = cursor.unsigned() if client_index is not None else None
    method = cursor.text(limits.MAX_METHOD_NAME_BYTES) if call_id is not None else None
    return CallHead(client_index, call_id, method)
