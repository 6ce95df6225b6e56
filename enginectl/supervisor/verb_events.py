"""Who asked for what, and what came of it: one event for each verb that acts.

Entered by the table of handlers, once before a verb that tells of itself meanwhile, once after every other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from enginectl.control import ControlRequest
from enginectl.errors import CtlError
from enginectl.supervisor.peer import Peer
from enginectl.supervisor.usernames import USERS
from enginectl.text import clip, one_line, user_id

if TYPE_CHECKING:
    from enginectl.supervisor.events import EventLog
    from enginectl.supervisor.server import Session

LOOKS = frozenset({"status", "watch", "requests", "events", "utilities", "generate", "explain", "metrics"})
"""Not told: they change nothing, or there are too many of them."""
TOLD_AT_ONCE = frozenset({"stop", "drain", "restart", "kill"})
"""What becomes of them is told by events of their own."""
MAX_IDS, MAX_ID_CHARS = 3, 24


def shortened(ids: Sequence[str]) -> str:
    """`cmpl-91c, cmpl-a02 and 7 more`: what an event has room for."""
    named = ", ".join(clip(user_id(name), MAX_ID_CHARS) for name in ids[:MAX_IDS])
    return f"{named} and {len(ids) - MAX_IDS} more" if len(ids) > MAX_IDS else named


def caller_text(peer: Peer | None, request: ControlRequest) -> str:
    """The kernel's word for who it is; the version is the caller's own."""
    version = f"version {one_line(request.version, 40)}" if request.version else ""
    if peer is None:
        return version or "somebody"
    return ", ".join(filter(None, (f"{USERS.of(peer.uid)} pid {peer.pid}", version)))


def tell_asked(events: EventLog, session: Session) -> None:
    """Before a verb that tells of itself."""
    if session.request.verb in TOLD_AT_ONCE:
        _add(events, session, "asked for")


def tell_done(events: EventLog, session: Session, error: CtlError | None = None) -> None:
    """After it, with its outcome."""
    verb = session.request.verb
    if verb in LOOKS or (verb in TOLD_AT_ONCE and error is None):
        return
    _add(events, session, session.outcome if error is None else f"{error.id} {one_line(error.message, 160)}")


def _add(events: EventLog, session: Session, outcome: str) -> None:
    request, peer = session.request, session.peer_process
    act = f"{request.verb[:40]} {session.subject}".strip()
    events.add(
        "verb", f"{act} by {caller_text(peer, request)}: {outcome}", verb=request.verb[:40], subject=session.subject,
        outcome=outcome, uid=peer.uid if peer else None, pid=peer.pid if peer else None, version=request.version[:40],
    )  # fmt: skip
