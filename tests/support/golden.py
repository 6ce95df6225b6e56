"""The captured frames, one message at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GOLDEN_DIR = Path(__file__).parent.parent / "golden"
VERSIONS = ("0.25.1", "0.32.0")


@dataclass(frozen=True)
class Captured:
    version: str
    line: int
    leg: str
    """hello, init, ready_response, ready, input or output"""
    frames: list[bytes]


def captured(version: str, *legs: str) -> Iterator[Captured]:
    """Every message of one version on these legs, all of them without any."""
    path = GOLDEN_DIR / f"engine-core-{version}.jsonl"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        entry = json.loads(line)
        if not legs or entry["leg"] in legs:
            yield Captured(version, number, entry["leg"], [bytes.fromhex(frame) for frame in entry["frames"]])
