"""What the dashboard knows at one moment, as frozen values. poll.py makes them, render.py and the stream only read.

A link that is slow, cut or never came up is a value here (`Link`), never an exception. A snapshot is also one line of
`top --stream` and of the file that `top --replay` reads, so it holds no text or token of any request."""

from __future__ import annotations

from typing import Literal

from msgspec import DecodeError, Struct, json, structs

from enginectl.control import EngineView, EventView, RequestView
from enginectl.control_explain import Explanation
from enginectl.output import SCHEMA, plain

DEAD_STATES = frozenset({"exited", "failed", "backoff", "lost"})
"""The engine's process is gone, or its supervisor is."""


class Link(Struct, frozen=True, kw_only=True):
    """How the last attempt to look went."""

    state: Literal["connecting", "live", "stale", "lost"] = "connecting"
    """stale: connected, but the newest data is older than it should be. lost: nobody answers."""
    age_s: float = 0.0
    """Since the data shown came, monotonic."""
    reason: str = ""
    retry_in_s: float | None = None

    @property
    def is_live(self) -> bool:
        return self.state == "live"


class Snapshot(Struct, frozen=True, kw_only=True):
    """Everything one frame is drawn from. `view` is None until the engine was seen once."""

    ts: float
    """Wall clock, s."""
    seq: int
    type: str = "snapshot"
    name: str
    link: Link = Link()
    view: EngineView | None = None
    requests: tuple[RequestView, ...] = ()
    requests_total: int = 0
    requests_error: str = ""
    """Why the table is empty or old, when it is."""
    events: tuple[EventView, ...] = ()
    """Oldest first."""
    explanation: Explanation | None = None
    """Of the request that is looked at in detail."""
    engines: tuple[str, ...] = ()
    interval_s: float = 1.0
    log: tuple[str, ...] = ()
    """The engine's last log lines, only while somebody looks at them."""

    @property
    def state(self) -> str:
        return self.view.state if self.view else "unknown"

    @property
    def is_dead(self) -> bool:
        return self.state in DEAD_STATES

    @property
    def is_dimmed(self) -> bool:
        """The figures are of the past."""
        return not self.link.is_live or self.is_dead


def to_json(snapshot: Snapshot) -> bytes:
    """One line without its newline. Log lines stay out: they are free text."""
    return json.encode({"schema": SCHEMA} | plain(structs.replace(snapshot, log=())))


def from_json(line: bytes) -> Snapshot | None:
    """None when the line is no snapshot (another type, another tool, a torn last line)."""
    try:
        found = json.decode(line, type=Snapshot)
    except (DecodeError, RecursionError):
        return None
    return found if found.type == "snapshot" else None
