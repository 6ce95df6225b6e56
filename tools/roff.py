"""Prose in a small markup becomes man(7) macros.

Enters: lines with `# SECTION`, `## Subsection`, paragraphs, four-space blocks that are kept as they are, and terms with
`:   ` in front of what they mean; inside them **bold**, *italic* and `code`. Leaves: roff that groff and mandoc take
without a word. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

INDENT = "    "
MEANING = ":   "
WIDTH = 78
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*")
_PLAIN = {"\\": r"\e", "~": r"\(ti", "^": r"\(ha", "`": r"\(ga"}
_LITERAL = _PLAIN | {"-": r"\-", "'": r"\(aq", '"': r"\(dq"}


def to_roff(text: str) -> str:
    """The body of a page. Raises ValueError for a character that a terminal may not have."""
    if not text.isascii():
        raise ValueError(f"not ASCII: {[char for char in text if not char.isascii()][:5]}")
    return "\n".join(_macros(_blocks(text))) + "\n"


def _blocks(text: str) -> Iterator[list[str]]:
    """Runs of lines between blank ones; kept blocks that follow each other are one."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def _macros(blocks: Iterator[list[str]]) -> Iterator[str]:
    fresh = True
    for block in blocks:
        first = block[0]
        if first.startswith("## "):
            yield f".SS {inline(first[3:])}"
            block, fresh = block[1:], True
        elif first.startswith("# "):
            yield f".SH {_quoted(first[2:])}"
            block, fresh = block[1:], True
        if not block:
            continue
        if block[0].startswith(INDENT):
            yield from ([] if fresh else [".PP"])
            yield from _kept(block)
        elif len(block) > 1 and block[1].startswith(MEANING):
            yield from _terms(block)
        else:
            yield from ([] if fresh else [".PP"])
            yield from _filled(" ".join(block))
        fresh = False


def _kept(block: list[str]) -> Iterator[str]:
    yield from (".RS 4", ".nf")
    for line in block:
        yield guard(literal(line.removeprefix(INDENT)))
    yield from (".fi", ".RE")


def _terms(block: list[str]) -> Iterator[str]:
    term, meaning = "", ""
    for line in [*block, ""]:
        if line.startswith((INDENT, MEANING)):
            meaning += " " + line.removeprefix(MEANING).strip()
            continue
        if term:
            yield from (".TP", guard(inline(term)))
            yield from _filled(meaning.strip())
        term, meaning = line, ""


def _filled(text: str) -> Iterator[str]:
    """A sentence to a line, and no line too long to read in a diff."""
    for sentence in re.split(r"(?<=[.?!]) (?=[A-Z`*])", text):
        for line in textwrap.wrap(inline(sentence), WIDTH, break_long_words=False, break_on_hyphens=False):
            yield guard(line)


def inline(text: str) -> str:
    """Fonts and escapes inside a line."""
    parts, at = [], 0
    for match in _INLINE.finditer(text):
        code, bold, italic = match.groups()
        parts.append(plain(text[at : match.start()]))
        font = "I" if italic is not None else "B"
        parts.append(f"\\f{font}{literal(code or bold or italic)}\\fR")
        at = match.end()
    return "".join([*parts, plain(text[at:])])


def plain(text: str) -> str:
    """Words: hyphens stay hyphens, but `--option` is what a person types."""
    escaped = "".join(_PLAIN.get(char, char) for char in text)
    return re.sub(r"(?<![A-Za-z0-9])--?(?=[A-Za-z])", lambda match: match[0].replace("-", r"\-"), escaped)


def literal(text: str) -> str:
    """What a person types or reads on a terminal, character by character."""
    return "".join(_LITERAL.get(char, char) for char in text)


def guard(line: str) -> str:
    """No line of text is taken for a request."""
    return rf"\&{line}" if line.startswith((".", "'")) else line


def _quoted(text: str) -> str:
    return f'"{plain(text)}"' if " " in text else plain(text)
