"""What a hostile or broken peer may send on an input socket, by name. None of it may end anything.

Pickles here would create a file if anybody ever loaded them."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.msgpack import Ext

ADD, ABORT, WAVE, UTILITY = b"\x00", b"\x01", b"\x02", b"\x03"
REQUEST_ID = "hostile"


class _Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (str(self.path), "w"))


def pickled(path: Path) -> bytes:
    """Loading it would create `path`."""
    return pickle.dumps(_Bomb(path))


def _pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\x90"


def add_body(**changed: object) -> list[object]:
    """An ADD body with chosen positions replaced: f2=..., f11=..."""
    body: list[object] = [REQUEST_ID, [1, 2, 3], None, {"max_tokens": 2}, None, 0.0, None, None, None, None, None,
                          0, 0, 0, None, False, None, None, None, False]  # fmt: skip
    for name, value in changed.items():
        body[int(name[1:])] = value
    return body


def _deep(depth: int) -> Iterator[tuple[str, list[bytes]]]:
    inner = nested(depth)
    text = _pack(REQUEST_ID)
    yield f"ADD of {depth} arrays", [ADD, inner]
    yield f"ADD with {depth} arrays as prompt", [ADD, b"\x94" + text + inner + b"\xc0\xc0"]
    yield f"ADD with {depth} arrays as mm_features", [ADD, b"\x94" + text + b"\x91\x01" + inner + b"\xc0"]
    yield f"ADD with {depth} arrays as sampling_params", [ADD, b"\x94" + text + b"\x91\x01\xc0" + inner]
    unknown = b"\x81\xa3odd" + inner
    yield f"ADD with {depth} arrays under an unknown key", [ADD, b"\x94" + text + b"\x91\x01\xc0" + unknown]
    extra = b"\x81\xaaextra_args" + inner
    yield f"ADD with {depth} arrays as extra_args", [ADD, b"\x94" + text + b"\x91\x01\xc0" + extra]
    yield f"UTILITY of {depth} arrays", [UTILITY, inner]
    yield f"UTILITY with {depth} arrays as argument", [UTILITY, b"\x94\x00\x07\xa4ping\x91" + inner]
    yield f"ABORT of {depth} arrays", [ABORT, inner]
    yield f"START_DP_WAVE of {depth} arrays", [WAVE, inner]


def _pickles(path: Path) -> Iterator[tuple[str, list[bytes]]]:
    bomb = pickled(path)
    yield "a pickle alone", [bomb]
    for kind in (ADD, ABORT, WAVE, UTILITY):
        yield f"a pickle as body of {kind.hex()}", [kind, bomb]
    yield "a pickle as type byte", [bomb, _pack(add_body())]
    yield "a pickle as tensor buffer", [ADD, _pack(add_body(f9=["float32", [1], 1])), bomb]
    for code in (-128, -1, 0, 1, 2, 3, 4, 42, 127):
        ext = Ext(code, bomb)
        for place in range(20):
            yield f"a pickle as extension {code} at {place} of ADD", [ADD, _pack(add_body(**{f"f{place}": ext}))]
        for name in ("extra_args", "stop_token_ids", "unheard_of", "temperature"):
            body = add_body(f3={"max_tokens": 2, name: ext})
            yield f"a pickle as extension {code} in {name}", [ADD, _pack(body)]
        yield f"a pickle as extension {code} in UTILITY", [UTILITY, _pack([0, 8, "ping", [ext]])]
        yield f"a pickle as extension {code} in ABORT", [ABORT, _pack([ext])]


def _shapes() -> Iterator[tuple[str, list[bytes]]]:
    for kind in (ADD, ABORT, WAVE, UTILITY):
        for body in (None, True, 7, -7, 1.5, "text", b"bytes", [], {}, [[]], [None] * 30, [{}], {"a": 1}, 2**63):
            yield f"{body!r} as body of {kind.hex()}", [kind, _pack(body)]
    for place in range(20):
        for value in (-1, 2**63, "text", [["a"]], {"a": {"b": 1}}, 1e300, float("nan"), b"\xff"):
            yield f"{value!r} at {place} of ADD", [ADD, _pack(add_body(**{f"f{place}": value}))]
    for call in ([0], [0, 1], [0, -1, "ping", []], [0, 2**63, 5, []], ["a", 1, "ping", []], [0, 1, "ping", 5],
                 [99, 12, "ping", []], [-1, 13, "ping", []], [0, 14, "x" * 10**6, []], [0, 15, "__class__", []],
                 [0, 16, "ping", [1] * 1000], [0, 17, "ping", ["x" * 2 * 10**6]]):  # fmt: skip
        yield f"call {str(call)[:40]}", [UTILITY, _pack(call)]
    yield "a million ids to abort", [ABORT, _pack(["a"] * 10**6)]
    yield "an id that is not UTF-8", [ADD, b"\x93\xa2\xff\xfe\x91\x01\xc0"]


def _lengths() -> Iterator[tuple[str, list[bytes]]]:
    for header in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
                   b"\xc9\xff\xff\xff\xff\x01"):  # fmt: skip
        for kind in (ADD, ABORT, UTILITY):
            yield f"{header.hex()} as body of {kind.hex()}", [kind, header]
        yield f"{header.hex()} as prompt", [ADD, b"\x93" + _pack(REQUEST_ID) + header]
        yield f"{header.hex()} as argument", [UTILITY, b"\x94\x00\x09\xa4ping\x91" + header]
        yield f"{header.hex()} as mm_features", [ADD, b"\x93" + _pack(REQUEST_ID) + b"\x91\x01" + header]
    good = _pack(add_body())
    for cut in range(len(good)):
        yield f"ADD cut at {cut}", [ADD, good[:cut]]
    for shape, data in (([2**40], Ext(3, b"")), ([2, 3], Ext(3, b"123")), ([1], 99), ([1], -1), ([-1], 1),
                        ([1] * 100, 1), ("x", 1), ([1], "x"), ([1.5], 1)):  # fmt: skip
        yield f"tensor {shape} {data}"[:60], [ADD, _pack(add_body(f9=["float32", shape, data])), b"1234"]
    yield "tensor of objects", [ADD, _pack(add_body(f9=["O", [1], 1])), b"12345678"]


def messages(bomb_path: Path, seed: int = 7) -> Iterator[tuple[str, list[bytes]]]:
    """(name, frames) of everything but deep nesting in its largest size, which is here once for each place."""
    noise = random.Random(seed)
    yield "no frame but an empty one", [b""]
    yield "one type byte", [ADD]
    yield "an unknown type", [b"\x7f", b"\x90"]
    yield "a long type", [ADD * 2, _pack(add_body())]
    for marker in (b"\x04", b"\x05"):
        yield f"internal marker {marker.hex()}", [marker, b"\x90"]
    yield "empty frames", [b""] * 5
    yield "ADD, empty body", [ADD, b""]
    for kind in (ADD, ABORT, WAVE, UTILITY):
        yield f"60 frames as {kind.hex()}", [kind, *[noise.randbytes(20) for _ in range(59)]]
        yield f"1 MB of noise as {kind.hex()}", [kind, noise.randbytes(10**6)]
        for _ in range(100):
            yield f"random bytes as {kind.hex()}", [kind, noise.randbytes(noise.randrange(200))]
    for _ in range(200):
        yield "random frames", [noise.randbytes(noise.randrange(30)) for _ in range(noise.randrange(1, 50))]
    for depth in (500, 5_000, 200_000):
        yield from _deep(depth)
    yield from _pickles(bomb_path)
    yield from _shapes()
    yield from _lengths()
