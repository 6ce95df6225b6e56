"""A generation that gives no token: what it waits for, said once, with the command that helps.

Called while nothing comes. Asks the supervisor, never the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from enginectl.control import EngineView
from enginectl.errors import CtlError

if TYPE_CHECKING:
    from enginectl.client import Engine

FIRST_S = 1.0
"""Without a token for so long; a long prefill alone is no reason to say anything."""
AGAIN_S = 2.0


class Waiting:
    def __init__(self, engine: Engine, request_id: str, say: Callable[[str], None]) -> None:
        self._engine = engine
        self._request_id = request_id
        self._say = say
        self._has_said = False
        self._next_s = FIRST_S

    def look(self, quiet_s: float) -> None:
        """`quiet_s`: since the last token, or the beginning."""
        if quiet_s < FIRST_S:
            self._next_s = FIRST_S
        if self._has_said or quiet_s < self._next_s:
            return
        self._next_s = quiet_s + AGAIN_S
        try:
            reason = why(self._engine.status(), self._request_id)
        except CtlError:
            return  # the stream itself will say it
        if reason:
            self._has_said = True
            self._say(f"waiting: {reason}")


def why(view: EngineView, request_id: str) -> str:
    """Empty when the engine is at work."""
    name = view.name
    if view.held_s is not None:
        return f"{name} is being replaced and this request is held; enginectl status {name}"
    match view.state:
        case "paused":
            return f"{name} is paused; enginectl resume {name} lets it go on"
        case "sleeping":
            return f"{name} is asleep; enginectl wake {name} lets it go on"
        case "stalled":
            return f"{name} is stalled ({view.reason}); enginectl stacks {name} shows where"
        case "saturated":
            return f"{name} is full ({view.reason}); enginectl explain -e {name} {request_id} says when it starts"
        case _:
            return ""
