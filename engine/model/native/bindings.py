"""The compiled step library seen from Python: its structs and functions, nothing else.

Enters: the path of a library that build.py has checked. Leaves: a Library. ctypes releases the GIL for each call. The
structs here are those of src/state.h, field by field."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_void_p
from enum import IntEnum
from pathlib import Path

TOO_MANY_TASKS = -2
"""What `step` returns then, and has done nothing."""


class Matrix(IntEnum):
    QKV, O, GATE, UP, DOWN, HEAD = range(6)  # noqa: E741 - the projection's usual name


class Vector(IntEnum):
    INPUT_NORM, POST_NORM, Q_NORM, K_NORM, QKV_BIAS, O_BIAS, FINAL_NORM, ROPE, EMBEDDING = range(9)


class Sizes(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("vocab", "hidden", "inner", "layers", "heads", "kv_heads", "dim", "block_size")),
        *((name, c_int32) for name in ("threads", "weights_are_bfloat16", "cache_is_bfloat16", "pairs", "bits")),
        ("epsilon", c_float),
    ]


class Batch(Structure):
    _fields_ = [
        *((name, c_int32) for name in ("tokens", "rows", "kept_tokens", "kept_rows")),
        ("ids", c_void_p),
        ("blocks", c_void_p),
        ("positions", c_void_p),
        ("row", c_void_p),
        ("kept", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("layer_stride", c_int64),
        ("upcoming", c_int64),
        ("num_upcoming", c_int64),
        ("hidden", c_void_p),
    ]


class Library:
    """Loads the file. Raises OSError when it is none, AttributeError when a function is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        library = ctypes.CDLL(str(path))
        self.width = _function(library, "ek_width", c_int)
        """Floats in a vector."""
        self.has_pairs = _function(library, "ek_has_pairs", c_int)
        self.description = _function(library, "ek_description", c_char_p)
        self.new = _function(library, "ek_new", c_void_p, POINTER(Sizes))
        self.free = _function(library, "ek_free", None, c_void_p)
        self.threads = _function(library, "ek_threads", c_int, c_void_p)
        self.set_matrix = _function(library, "ek_set_matrix", c_int, c_void_p, c_int, c_int, c_void_p, c_int, c_int)
        self.set_codes = _function(
            library, "ek_set_codes", c_int, c_void_p, c_int, c_int, c_void_p, c_void_p, c_void_p, c_int
        )
        self.set_vector = _function(library, "ek_set_vector", None, c_void_p, c_int, c_int, c_void_p)
        self.step = _function(library, "ek_step", c_int, c_void_p, POINTER(Batch))
        self.logits = _function(library, "ek_logits", c_int, c_void_p, c_void_p, c_int, c_void_p)
        self.read = _function(library, "ek_read", c_float, c_void_p, c_void_p, c_int64)
        self.multiply_adds = _function(library, "ek_multiply_adds", c_double, c_void_p, c_int)
        self.product = _function(library, "ek_product", c_int, c_void_p, c_int, c_int, c_void_p, c_int, c_void_p)
        self.greedy = _function(library, "ek_greedy", c_int, c_void_p, c_void_p, c_int, c_void_p, c_void_p)
        self.draw = _function(library, "ek_draw", None, *(c_void_p,) * 3, c_int, c_float, *(c_void_p,) * 6)


def _function(library: ctypes.CDLL, name: str, result: object, *arguments: object) -> ctypes._NamedFuncPointer:
    function = library[name]
    function.restype = result  # type: ignore[assignment]
    function.argtypes = arguments  # type: ignore[assignment]
    return function
