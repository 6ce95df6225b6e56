"""What pause, resume, sleep and wake share: one control verb with its deadline, a question before requests end, one
report. Owns nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from enginectl import text
from enginectl.control import EngineView
from enginectl.errors import CtlError, Exit
from enginectl.output import out, plain
from enginectl.patience import TAKE_BACK_S, Patience

if TYPE_CHECKING:
    from enginectl.client import Engine

TAKEN_BACK = ("pause", "sleep")
"""What a supervisor undoes when nobody waits for it any more."""


def gate(engine: Engine, verb: str, args: Struct, timeout_s: float) -> EngineView:
    """Raises what the supervisor answers, or Deadline; after Ctrl-C says what becomes of it."""
    wait_s = Patience(timeout_s).wait_s + (TAKE_BACK_S if verb in TAKEN_BACK else 0.0)
    try:
        return engine.control.request(verb, args, EngineView, timeout_s=wait_s)
    except KeyboardInterrupt:
        if verb not in TAKEN_BACK:
            raise
        raise CtlError(
            f"interrupted; the {verb} that was not done is taken back, and {engine.name!r} is left as it was",
            id="E1901",
            exit=Exit.INTERRUPTED,
            try_=[f"enginectl status {engine.name}"],
        ) from None


def confirm_ending(view: EngineView, act: str, *, yes: bool) -> None:
    """Asks when requests would end. Raises Refused."""
    flying = view.stats.running + view.stats.waiting if view.stats else 0
    if flying:
        verb, _, options = act.partition(" ")
        retry = " ".join(filter(None, ("enginectl", verb, view.name, options, "--yes")))
        out.confirm(f"{act} ends {text.count(flying, 'request')} in flight of {view.name}", yes=yes, retry=retry)


def report(view: EngineView, *, changed: bool, line: str) -> None:
    out.document("Engine", plain(view) | {"changed": changed})
    out.text(line if changed else f"{line} (already so)")
