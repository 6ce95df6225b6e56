"""Bytes from a terminal become key names: `q`, `up`, `enter`, `esc`, `tab`. Owns the unfinished tail between reads.

An escape sequence may arrive in pieces, and a lone ESC is its beginning: `feed` keeps it, `flush` says after a short
silence that it was the key. Sequences that nobody knows vanish whole, so a paste or a mouse report presses nothing."""

from __future__ import annotations

import re

ESC = "\x1b"
ESC_WAIT_S = 0.05
"""After this long without more bytes an ESC is the key itself."""

NAMES = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    " ": "space",
    "\x03": "ctrl-c",
    "\x0c": "ctrl-l",
    "\x1a": "ctrl-z",
}
SEQUENCES = {
    "[A": "up",
    "[B": "down",
    "[C": "right",
    "[D": "left",
    "OA": "up",
    "OB": "down",
    "OC": "right",
    "OD": "left",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
    "[5~": "pageup",
    "[6~": "pagedown",
    "[Z": "backtab",
    "[3~": "delete",
}
_CSI = re.compile(r"\[[0-?]*[ -/]*[@-~]")
_LONGEST = 64
"""A sequence that has not ended by then is noise."""


class KeyReader:
    """Turns reads into keys, in order."""

    def __init__(self) -> None:
        self._held = ""

    @property
    def is_waiting(self) -> bool:
        """An escape sequence has begun and not ended."""
        return bool(self._held)

    def feed(self, data: bytes) -> list[str]:
        """Keys that are complete now. Bytes that are no UTF-8 are dropped."""
        text = self._held + data.decode("utf-8", "ignore")
        self._held = ""
        keys: list[str] = []
        while text:
            if text[0] == ESC:
                taken = self._sequence(text, keys)
                if not taken:
                    self._held = text
                    break
                text = text[taken:]
                continue
            key = NAMES.get(text[0], text[0])
            if len(key) > 1 or key.isprintable():
                keys.append(key)
            text = text[1:]
        return keys

    def flush(self) -> list[str]:
        """After ESC_WAIT_S of silence: what was held is an ESC, or a torn sequence, which vanishes."""
        held, self._held = self._held, ""
        return ["esc"] if held == ESC else []

    def _sequence(self, text: str, keys: list[str]) -> int:
        """How many characters the sequence at the start of `text` takes; 0 when it is not complete."""
        rest = text[1:]
        if not rest:
            return 0
        if rest[0] == "[":
            match = _CSI.match(rest)
            if match is None:
                return 0 if len(rest) < _LONGEST else len(text)
            self._emit(match.group(), keys)
            return 1 + match.end()
        if rest[0] == "O":
            if len(rest) < 2:
                return 0
            self._emit(rest[:2], keys)
            return 3
        keys.append("esc")
        return 1

    @staticmethod
    def _emit(sequence: str, keys: list[str]) -> None:
        name = SEQUENCES.get(sequence)
        if name:
            keys.append(name)
