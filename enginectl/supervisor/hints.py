"""Small files for completion in a shell: utility names and the youngest request ids, in the runtime directory.

Rewritten at most once a second and only when they changed; a failure costs the hint."""

from __future__ import annotations

from pathlib import Path

from engine.reports import EngineDescription
from enginectl.supervisor.inflight import InflightTable

EVERY_S = 1.0
YOUNGEST = 200


class Hints:
    def __init__(self, base: Path) -> None:
        self._base = base
        self._written: dict[str, str] = {}
        self._at = 0.0

    def update(self, now: float, inflight: InflightTable, description: EngineDescription | None) -> None:
        if now - self._at < EVERY_S:
            return
        self._at = now
        names = [] if description is None else [row.name for row in description.utilities]
        ids = [flight.external_id for flight in list(inflight.flights.values())[-YOUNGEST:]]
        self._write("utilities", names)
        self._write("requests", list(dict.fromkeys(ids)))

    def _write(self, name: str, lines: list[str]) -> None:
        text = "".join(f"{line}\n" for line in lines if "\n" not in line)
        path = self._base / name
        if self._written.get(name, "") == text and (path.exists() or not text):
            return
        try:
            temporary = self._base / f".{name}"
            temporary.write_text(text)
            temporary.replace(path)
            self._written[name] = text
        except (OSError, UnicodeEncodeError):
            pass

    def remove(self) -> None:
        for name in self._written:
            (self._base / name).unlink(missing_ok=True)
