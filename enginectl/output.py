"""What a command says: data to stdout, everything else to stderr, exactly one document with `-o json`.

One `Output` per process (`out`), set up by cli.main. It never decides an exit code. Writing to a pipe nobody reads
raises BrokenPipeError, a full device OSError; cli.main turns both into a quiet or a one-line end."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

import msgspec

from enginectl.envelope import error_info
from enginectl.errors import CtlError, Refused
from enginectl.text import ASCII_TWINS, clip

SCHEMA = "enginectl/v1"
_HEAD = ("schema", "kind")
_encode_json = msgspec.json.Encoder().encode


def plain(body: object) -> dict[str, object]:
    """A struct or a map as a map of plain values. Through msgpack, so that Raw fields are read, not copied."""
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(body), strict=False)
    return fields if isinstance(fields, dict) else {"value": fields}


def document(kind: str, body: object) -> bytes:
    """`body` (a struct or a map) as one JSON document; `schema` and `kind` first."""
    fields = {key: value for key, value in plain(body).items() if key not in _HEAD}
    return _encode_json({"schema": SCHEMA, "kind": kind} | fields)


class Output:
    """Where and how this command writes. `said_document`: stdout already holds the one document."""

    def __init__(self, stdout: TextIO | None = None, stderr: TextIO | None = None, *, json: bool = False) -> None:
        self.json = json
        self.said_document = False
        self._seq = 0
        self._live = False
        self._stdout = stdout
        self._stderr = stderr

    @property
    def stdout(self) -> TextIO:
        return self._stdout or sys.stdout

    @property
    def stderr(self) -> TextIO:
        return self._stderr or sys.stderr

    # ------------------------------------------------------------ data

    def text(self, *lines: str) -> None:
        """Data for people; nothing with `-o json`."""
        if not self.json:
            self.clear_live()
            for line in lines:
                self.stdout.write(_fit(line, self.stdout) + "\n")
            self.stdout.flush()

    def raw(self, text: str) -> None:
        """Data as it comes, without a line end."""
        self.stdout.write(_fit(text, self.stdout))
        self.stdout.flush()

    def document(self, kind: str, body: object) -> None:
        """The one document; nothing without `-o json`."""
        if self.json and not self.said_document:
            self.said_document = True
            self._write_json(document(kind, body))

    def line(self, type: str, body: object) -> None:
        """One line of a stream; nothing without `-o json`. A stream's last line may be an Error."""
        if self.json:
            self._seq += 1
            head = {"schema": SCHEMA, "type": type, "ts": round(time.time(), 3), "seq": self._seq}
            rest = {k: v for k, v in plain(body).items() if k not in ("type", *_HEAD)}
            self._write_json(_encode_json(head | rest))

    def _write_json(self, data: bytes) -> None:
        self.stdout.write(_ascii_json(data, self.stdout) + "\n")
        self.stdout.flush()

    # ------------------------------------------------------------ words

    def say(self, *lines: str) -> None:
        """Words for people, to stderr."""
        self.clear_live()
        for line in lines:
            self.stderr.write(_fit(line, self.stderr) + "\n")
        self.stderr.flush()

    def live(self, line: str) -> None:
        """A line that the next one replaces; only on an interactive terminal."""
        if self.is_live:
            self._live = True
            self.stderr.write("\r\x1b[K" + _fit(clip(line, self.width - 1), self.stderr))
            self.stderr.flush()

    def clear_live(self) -> None:
        if self._live:
            self._live = False
            self.stderr.write("\r\x1b[K")
            self.stderr.flush()

    def error(self, error: CtlError) -> None:
        """The failure for people on stderr; with `-o json` also the document (or the stream's last line)."""
        self.error_text(error)
        info = error_info(error)
        fields = {
            "id": info.id,
            "message": info.message,
            "cause": info.cause,
            "try": info.try_,
            "see": info.see,
            "exit": info.exit,
        }
        if self._seq:
            self.line("error", fields)
        else:
            self.document("Error", fields)

    def error_text(self, error: CtlError) -> None:
        self.say(*error_lines(error))

    # ------------------------------------------------------------ the terminal

    @property
    def is_live(self) -> bool:
        """May lines be redrawn? Asks the terminal itself, never a colour variable."""
        return self.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")

    @property
    def may_ask(self) -> bool:
        return sys.stdin is not None and sys.stdin.isatty() and self.stderr.isatty()

    @property
    def width(self) -> int:
        return shutil.get_terminal_size((80, 24)).columns

    @property
    def table_width(self) -> int | None:
        """Columns for rows on stdout; None off a terminal, where rows are never cut."""
        return self.width if self.stdout.isatty() else None

    @property
    def words_width(self) -> int | None:
        """Columns for words on stderr; None off a terminal, where lines are never broken."""
        return self.width if self.stderr.isatty() else None

    def confirm(self, question: str, *, yes: bool, retry: str) -> None:
        """Go on, or raise Refused. Asks on a terminal (default no); off it only `--yes` goes on."""
        if yes:
            return
        if not self.may_ask:
            raise Refused(f"not done without --yes off a terminal: {question}", try_=[retry])
        self.clear_live()
        self.stderr.write(_fit(f"{question}. Continue? [y/N] ", self.stderr))
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Refused("not confirmed; nothing was done")


def error_lines(error: CtlError) -> list[str]:
    """`error[E1203]: ...` with cause, try and see below it."""
    lines = [f"error[{error.id}]: {error.message}"]
    if error.cause:
        first, *rest = error.cause.splitlines()
        lines += [f"  cause: {first}", *(f"         {line}" for line in rest[:8])]
    lines += [f"  try:   {line}" if i == 0 else f"         or {line}" for i, line in enumerate(error.try_)]
    if error.see:
        lines.append("  see:   " + "   ·   ".join(error.see))
    return lines


def _is_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "ascii").lower().replace("-", "").startswith("utf")


def _fit(text: str, stream: TextIO) -> str:
    if _is_unicode(stream):
        return text.encode("utf-8", "replace").decode()
    encoding = stream.encoding or "ascii"
    return text.translate(ASCII_TWINS).encode(encoding, "replace").decode(encoding)


def _ascii_json(data: bytes, stream: TextIO) -> str:
    text = data.decode()
    if _is_unicode(stream):
        return text
    return "".join(c if ord(c) < 128 else _escape(c) for c in text)


def _escape(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


out = Output()
"""This process's output; cli.main sets `json`."""
