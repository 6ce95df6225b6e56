"""Two results of one benchmark side by side: every figure of both, and the second divided by the first.

usage: python -m bench.diff BEFORE.json AFTER.json"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def figures(value: Json, path: str = "") -> dict[str, float]:
    """Numbers by their dotted path; lists by place."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return {}
    if isinstance(value, int | float):
        return {path: float(value)}
    items = value.items() if isinstance(value, dict) else ((str(place), item) for place, item in enumerate(value))
    found: dict[str, float] = {}
    for name, item in items:
        found |= figures(item, f"{path}.{name}" if path else name)
    return found


def different_settings(before: Json, after: Json) -> list[str]:
    """What was not alike: figures of different machines or settings do not compare."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return ["not a result document"]
    names = sorted((before.keys() | after.keys()) - {"load_1min"})
    return [f"{name}: {before.get(name)} / {after.get(name)}" for name in names if before.get(name) != after.get(name)]


def compare(before: dict[str, Json], after: dict[str, Json]) -> dict[str, object]:
    """Raises SystemExit when the two are not of one benchmark."""
    if before.get("bench") != after.get("bench"):
        raise SystemExit(f"two benchmarks: {before.get('bench')} and {after.get('bench')}")
    old, new = figures(before.get("result")), figures(after.get("result"))
    rows = {
        name: {"before": old.get(name), "after": new.get(name), "after_per_before": ratio(old.get(name), new.get(name))}
        for name in sorted(old.keys() | new.keys())
    }
    differs = [
        line for part in ("machine", "settings") for line in different_settings(before.get(part), after.get(part))
    ]
    return {"bench": before.get("bench"), "differs": differs, "figures": rows}


def ratio(before: float | None, after: float | None) -> float | None:
    return round(after / before, 4) if before and after is not None else None


def main(before: str, after: str) -> None:
    documents = [json.loads(Path(name).read_text()) for name in (before, after)]
    json.dump(compare(*documents), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
