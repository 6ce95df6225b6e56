"""The four keys that change something, each on a connection of its own in a short thread, so that no key waits.

Enters: an Effect that a dialog confirmed. Leaves: one line for the person. Dies with its answer or its deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from enginectl.control import DrainProgress, EngineView
from enginectl.control_verbs import (
    AbortArgs,
    AbortResult,
    CordonArgs,
    DrainArgs,
    DrainEnd,
    Stacks,
    StacksArgs,
    StatusArgs,
)
from enginectl.errors import CtlError
from enginectl.top.state import Effect

ACTION_TIMEOUT_S = 15.0


def begin(effect: Effect, name: str, done: Callable[[str], None]) -> None:
    """Carries the action out in the background; `done` gets what came of it."""

    def work() -> None:
        try:
            done(perform(effect, name))
        except Exception as error:  # a thread's traceback would go over the picture, and the person hear nothing
            what = str(error) if isinstance(error, (CtlError, OSError)) else f"{type(error).__name__}: {error}"
            done(f"! {effect.kind}: {what}")

    threading.Thread(target=work, name=f"top-{effect.kind}", daemon=True).start()


def perform(effect: Effect, name: str) -> str:
    """One line of what happened. Raises CtlError, or OSError when a file cannot be written."""
    from enginectl.client import open_control

    with open_control(name) as control:
        match effect.kind:
            case "abort":
                args = AbortArgs(ids=[effect.arg], timeout_s=ACTION_TIMEOUT_S - 5.0)
                result = control.request("abort", args, AbortResult, timeout_s=ACTION_TIMEOUT_S)
                return ", ".join(f"{item.id or item.asked}: {item.result}" for item in result.items)
            case "drain":
                with control.stream("drain", DrainArgs(), DrainProgress, DrainEnd, ACTION_TIMEOUT_S) as progress:
                    first = next(progress, None)
                return f"draining, {first.running + first.waiting} left" if first else "drained"
            case "cordon":
                verb = "uncordon" if control.request("status", StatusArgs(), EngineView).cordoned else "cordon"
                control.request(verb, CordonArgs(), EngineView, timeout_s=ACTION_TIMEOUT_S)
                return f"{verb}ed"
            case "stacks":
                found = control.request("stacks", StacksArgs(), Stacks, timeout_s=ACTION_TIMEOUT_S)
                path = Path(f"stacks-{name}-{time.strftime('%Y%m%d-%H%M%S')}.txt").absolute()
                path.write_text(found.text)
                return f"stacks are in {path}"
    raise CtlError(f"unknown action {effect.kind!r}")
