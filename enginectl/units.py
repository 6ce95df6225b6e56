"""Text a person types becomes numbers with a unit: durations here, sizes in engine.config. Pure."""

from __future__ import annotations

import math
import re

from enginectl.errors import UsageError

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
MAX_S = 365 * 86400.0
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str | float) -> float:
    """Seconds of `90s`, `2m`, `1h30m`, `250ms`, or a bare number of seconds. Raises UsageError."""
    if isinstance(text, (int, float)):
        return _finite(float(text), str(text))
    stripped = text.strip().lower()
    try:
        return _finite(float(stripped), text)
    except ValueError:
        pass
    parts = _PART.findall(stripped)
    if not parts or "".join(number + unit for number, unit in parts) != stripped:
        raise UsageError(f"not a duration: {text!r}", try_=["write it as 90s, 2m, 1h30m or 250ms"])
    return _finite(sum(float(number) * _SECONDS[unit] for number, unit in parts), text)


def _finite(value: float, text: str) -> float:
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"not a duration: {text!r}", try_=["write it as 90s, 2m, 1h30m or 250ms"])
    if value > MAX_S:
        raise UsageError(f"{text!r} is too long: at most a year, 365d")
    return value
