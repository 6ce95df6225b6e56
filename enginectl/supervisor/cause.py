"""Why an engine ended, in one line: from what it said of itself, else from the end of its log.

Pure functions over text."""

from __future__ import annotations

import re

_ERROR_LINE = re.compile(
    r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Killed|OutOfMemory)\b.*|.*\b(?:ERROR|FATAL|CRITICAL)\b.*)"
)
_NOISE = re.compile(r"^(?:Traceback|\s|During handling|The above exception)")


def first_cause(status_error: str, log_lines: list[str], exit_text: str) -> str:
    """`exit_text`: `exit 1` or `signal 9 KILL`. Never empty."""
    if status_error:
        return status_error
    for line in reversed(log_lines[-60:]):
        if _ERROR_LINE.match(line) and not _NOISE.match(line):
            return line.strip()[:500]
    if exit_text == "signal 9 KILL":
        return "killed from outside: somebody's kill -9, or the kernel out of memory (see dmesg)"
    last = next((line.strip() for line in reversed(log_lines) if line.strip()), "")
    return f"{exit_text}; its last words: {last[:300]}" if last else f"{exit_text}, without a word in its log"
