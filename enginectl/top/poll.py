"""Looks at one engine at a time, in a thread of its own, and hands over frozen snapshots.

Owns every socket of the dashboard. Enters: a name, an interval, whether somebody looks at the log. Leaves: a Snapshot
at each interval, also when nobody answers: then the last data with its age and a Link that says so, and another try
with back-off. Dies by stop(); an error in here becomes a Link, never an exception elsewhere."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Protocol

from msgspec import structs

from enginectl.control import EngineView, EventView, RequestView
from enginectl.control_explain import ExplainArgs, Explanation, ExplanationList
from enginectl.control_stats import Stats
from enginectl.control_verbs import EventList, EventsArgs, RequestList, RequestsArgs, StatusArgs
from enginectl.errors import CtlError, Deadline, EngineDied, NotRunning, Unreachable
from enginectl.top.snapshot import DEAD_STATES, Link, Snapshot

BACKOFF_S = (0.5, 1.0, 2.0, 5.0)
REPLY_S = 2.0
"""How long one question may take; the picture stands still meanwhile, the keys do not."""
REQUESTS_LIMIT = 1000
REQUESTS_REST_S = 5.0
"""The table is left alone this long after it did not come in time."""
EVENTS_KEPT = 200
NAMES_EVERY_S = 5.0
QUIET_S = 1.5
"""Without a published view for so long, the supervisor is asked for one."""
LOG_TAIL_BYTES = 64 * 1024
CONNECTION_ERRORS = (Deadline, EngineDied, NotRunning, Unreachable)


class Source(Protocol):
    """A connection to one engine. Every method raises CtlError when it cannot answer."""

    def published(self) -> EngineView | None:
        """The youngest view that came by itself since the last call, without waiting."""

    def status(self) -> EngineView: ...

    def requests(self) -> RequestList: ...

    def events(self, since_seq: int) -> EventList: ...

    def explain(self, request_id: str) -> Explanation: ...

    def close(self) -> None: ...


class LiveSource:
    """The real one: stats.sock for the figures, control.sock for the rest."""

    def __init__(self, name: str) -> None:
        from enginectl.client import open_control, open_stats

        self._control = open_control(name, is_patient=False)
        self._control.reply_timeout_s = REPLY_S
        try:
            self._stats = open_stats(name)
        except BaseException:
            self._control.close()
            raise

    def published(self) -> EngineView | None:
        return self._stats.read(0.0)

    def status(self) -> EngineView:
        return self._control.request("status", StatusArgs(), EngineView)

    def requests(self) -> RequestList:
        return self._control.request("requests", RequestsArgs(limit=REQUESTS_LIMIT), RequestList)

    def events(self, since_seq: int) -> EventList:
        args = EventsArgs(limit=EVENTS_KEPT, since_seq=since_seq)
        return self._control.request("events", args, EventList)

    def explain(self, request_id: str) -> Explanation:
        return self._control.request("explain", ExplainArgs(id=request_id), ExplanationList).items[0]

    def close(self) -> None:
        self._stats.close()
        self._control.close()


def last_words(name: str) -> EngineView | None:
    """What the files say of an engine without a supervisor."""
    from enginectl.rundir import EngineEntry

    return EngineEntry.read(name).view()


def engine_names() -> tuple[str, ...]:
    from enginectl.rundir import list_engines

    try:
        return tuple(entry.name for entry in list_engines())
    except (CtlError, OSError):
        return ()


class Poller:
    """One engine's picture, kept up to date. `look` is one round; `start` repeats it in a thread."""

    def __init__(
        self,
        name: str,
        news: Callable[[Snapshot], None],
        *,
        interval_s: float = 1.0,
        connect: Callable[[str], Source] = LiveSource,
        ended: Callable[[str], EngineView | None] = last_words,
        names: Callable[[], tuple[str, ...]] = engine_names,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.interval_s = interval_s
        self.wants_log = False
        self.wants_explained = ""
        """Id of the request that somebody looks at in detail."""
        self._news = news
        self._connect, self._ended, self._names = connect, ended, names
        self._monotonic, self._wall = monotonic, wall
        self._seq = 0
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="top-poll", daemon=True)
        self._known: tuple[str, ...] = ()
        self._names_at = float("-inf")
        self._seen = _Seen(name)

    # ------------------------------------------------------------ asked from the other thread

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 0.5) -> None:
        """Does not wait for an answer that is still out: the thread is a daemon and closes its own sockets."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def switch(self, name: str) -> None:
        self.name = name
        self._wake.set()

    def set_interval(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._wake.set()

    def hurry(self) -> None:
        """Look now rather than at the end of the interval."""
        self._wake.set()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        due = self._monotonic()
        try:
            while not self._is_stopping:
                self._news(self.look())
                due = max(due + self.interval_s, self._monotonic())
                if self._wake.wait(max(0.0, due - self._monotonic())):
                    self._wake.clear()
                    due = self._monotonic()
        finally:
            self._seen.drop()

    def look(self) -> Snapshot:
        """One round. Blocks at most a few times REPLY_S; what goes wrong becomes the snapshot's Link."""
        if self._seen.name != self.name:
            self._seen.drop()
            self._seen = _Seen(self.name)
        seen, now = self._seen, self._monotonic()
        try:
            self._connect_and_read(seen, now)
            if seen.source is None and seen.retry_at <= now:  # it ended just now: what do the files say?
                self._connect_and_read(seen, now)
        except Exception as error:  # a bug here must not freeze the picture without a word
            seen.drop()
            seen.fail(f"{type(error).__name__}: {error}", now)
        if now - self._names_at >= NAMES_EVERY_S:
            self._known, self._names_at = self._names(), now
        self._seq += 1
        return self._snapshot(seen, self._monotonic())

    def _connect_and_read(self, seen: _Seen, now: float) -> None:
        if seen.source is None and now >= seen.retry_at:
            self._open(seen, now)
        if seen.source is not None:
            self._read(seen, seen.source)

    def _open(self, seen: _Seen, now: float) -> None:
        try:
            seen.source = self._connect(seen.name)
            seen.view_at = float("-inf")
            seen.is_new = True
        except NotRunning as error:
            # No supervisor is an answer, not a broken link: the files tell how the engine ended.
            seen.fail(error.message, now)
            if (view := self._ended(seen.name)) is not None:
                seen.accept(view, now)
                seen.reason = ""
        except (CtlError, OSError) as error:
            seen.fail(_text(error), now)

    def _read(self, seen: _Seen, source: Source) -> None:
        try:
            self._read_view(seen, source)
        except CONNECTION_ERRORS as error:
            seen.drop()
            seen.fail(error.message, self._monotonic())
            if isinstance(error, EngineDied | NotRunning):
                seen.retry_at = float("-inf")
            return
        except CtlError as error:
            seen.reason = _text(error)
            return
        seen.failures = 0
        try:
            self._read_requests(seen, source)
            self._read_events(seen, source)
            self._read_explanation(seen, source)
        except (EngineDied, NotRunning):  # it ended between two questions, which no table is to be blamed for
            seen.drop()
            seen.retry_at = float("-inf")

    def _read_view(self, seen: _Seen, source: Source) -> None:
        view = source.published()
        age = self._monotonic() - seen.view_at
        if view is None and QUIET_S < age < float("inf") and seen.view is not None and seen.view.state in DEAD_STATES:
            # Its supervisor ends soon after it: what the files say then is better than its last words.
            raise EngineDied(f"engine {seen.name!r} is gone")
        if view is None and (age > QUIET_S or self.interval_s < 1.0):
            view = source.status()
        if view is not None:
            seen.accept(view, self._monotonic())

    def _read_requests(self, seen: _Seen, source: Source) -> None:
        now = self._monotonic()
        if now < seen.requests_after or (
            seen.view is not None and seen.view.state == "starting" and seen.view.held_s is None
        ):
            return
        try:
            found = source.requests()
        except (EngineDied, NotRunning):
            raise
        except CtlError as error:
            seen.requests_error = _text(error)
            seen.requests_after = now + REQUESTS_REST_S
            return
        seen.requests, seen.requests_total, seen.requests_error = tuple(found.items), found.total, ""

    def _read_events(self, seen: _Seen, source: Source) -> None:
        if seen.is_new:
            seen.events, seen.is_new = (), False
        since = seen.events[-1].seq if seen.events else 0
        try:
            fresh = [event for event in source.events(since).items if event.seq > since]
        except (EngineDied, NotRunning):
            raise
        except CtlError:
            return
        seen.events = (*seen.events, *fresh)[-EVENTS_KEPT:]

    def _read_explanation(self, seen: _Seen, source: Source) -> None:
        """None for a request that is gone, and from a supervisor that cannot explain."""
        wanted, seen.explanation = self.wants_explained, None
        if wanted:
            with contextlib.suppress(CtlError, IndexError):
                seen.explanation = source.explain(wanted)

    def _snapshot(self, seen: _Seen, now: float) -> Snapshot:
        view = seen.view
        log = tail(view.log) if self.wants_log and view is not None and view.log else ()
        return Snapshot(
            ts=self._wall(),
            seq=self._seq,
            name=seen.name,
            link=self._link(seen, now),
            view=view,
            requests=seen.requests,
            requests_total=seen.requests_total,
            requests_error=seen.requests_error,
            events=seen.events,
            explanation=seen.explanation,
            engines=self._known,
            interval_s=self.interval_s,
            log=log,
        )

    def _link(self, seen: _Seen, now: float) -> Link:
        age = max(0.0, now - seen.view_at) if seen.view is not None and seen.view_at > float("-inf") else 0.0
        if seen.source is None:
            if seen.view is not None and not seen.reason:
                return Link(state="live", age_s=age)
            return Link(state="lost", age_s=age, reason=seen.reason, retry_in_s=max(0.0, seen.retry_at - now))
        if seen.view is None:
            return Link(state="connecting", reason=seen.reason)
        if age > max(3.0, 2.5 * self.interval_s):
            return Link(state="stale", age_s=age, reason=seen.reason)
        return Link(state="live", age_s=age)


class _Seen:
    """What is known of one engine, and the connection to it. The poll thread's alone."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.source: Source | None = None
        self.is_new = False
        """Connected, and the events are still those of an earlier supervisor."""
        self.failures = 0
        self.retry_at = float("-inf")
        self.reason = ""
        self.view: EngineView | None = None
        self.view_at = float("-inf")
        self.requests: tuple[RequestView, ...] = ()
        self.requests_total = 0
        self.requests_error = ""
        self.requests_after = float("-inf")
        self.events: tuple[EventView, ...] = ()
        self.explanation: Explanation | None = None

    def accept(self, view: EngineView, now: float) -> None:
        """A view without figures keeps the last ones: a dead engine shows what it did last."""
        if view.stats is None and self.view is not None and self.view.stats is not None and view.state != "starting":
            view = structs.replace(view, stats=self.view.stats)
        if view.state in DEAD_STATES:
            view = self._at_its_end(view)
        self.view, self.view_at, self.reason = view, now, ""

    def _at_its_end(self, view: EngineView) -> EngineView:
        """What was in flight at a death stays to be looked at; an end that was asked for left nothing."""
        self.requests_error, self.requests_after = "", float("-inf")
        if view.last_exit is None or not view.last_exit.requested:
            return view
        self.requests, self.requests_total = (), 0
        return view if view.stats is None else structs.replace(view, stats=at_rest(view.stats))

    def fail(self, reason: str, now: float) -> None:
        self.reason = reason
        self.retry_at = now + BACKOFF_S[min(self.failures, len(BACKOFF_S) - 1)]
        self.failures += 1

    def drop(self) -> None:
        if self.source is not None:
            self.source.close()
            self.source = None


def at_rest(stats: Stats) -> Stats:
    """The last figures of an engine with what is of this moment alone at zero."""
    none = None if stats.kv_used_ratio is None else 0
    return structs.replace(
        stats, running=0, waiting=0, skipped=0, decode_tok_s=0.0, prefill_tok_s=0.0, requests_in_s=0.0,
        kv_used_blocks=none, kv_used_ratio=none,
    )  # fmt: skip


def _text(error: Exception) -> str:
    return error.message if isinstance(error, CtlError) else str(error)


def tail(path: str) -> tuple[str, ...]:
    """The last lines of a file, at most LOG_TAIL_BYTES; empty when it cannot be read."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        return (f"cannot read {path}: {error.strerror}",)
    return tuple(lines[1:] if size > LOG_TAIL_BYTES else lines)
