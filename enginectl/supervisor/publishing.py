"""Between the daemon and its exporter: pages are made when something changed and once a second, only while served."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from enginectl.probing import judge, line
from enginectl.supervisor.exporter import Exporter, Pages, check_listen
from enginectl.supervisor.exposition import metrics_text
from enginectl.supervisor.view import engine_view, state_of, stats_of

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon


def metrics_of(daemon: Daemon) -> str:
    return metrics_text(engine_view(daemon), daemon.book)


def listen(daemon: Daemon, address: str, *, allow_remote: bool) -> str:
    """Begins, moves or (`off`) ends serving; the URL. Raises UsageError, Refused, Conflict."""
    if address == "off":
        close(daemon)
        return ""
    host, port = check_listen(address, allow_remote=allow_remote)
    before = daemon.exporter
    if before is not None and port and before.url == _url(host, port):
        return before.url
    exporter = Exporter(host, port)
    close(daemon)
    daemon.exporter = exporter
    daemon.events.add("metrics", f"served at {exporter.url}")
    publish_pages(daemon, with_metrics=True)
    return exporter.url


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"


def close(daemon: Daemon) -> None:
    if daemon.exporter is not None:
        daemon.exporter.close()
        daemon.exporter = None
        daemon.events.add("metrics", "no longer served")


def publish_pages(daemon: Daemon, *, with_metrics: bool) -> None:
    """The probes at once, the figures when `with_metrics`. Costs nothing while nobody asked for it."""
    exporter = daemon.exporter
    if exporter is None:
        return
    state, reason = state_of(daemon)
    flags = {"is_cordoned": daemon.is_cordoned, "was_ready": daemon.ready is not None}
    live = judge("liveness", state, reason, **flags)
    ready = judge("readiness", state, reason, **flags)
    stats = stats_of(daemon, with_steps=False)
    pages = Pages(
        metrics=exporter.pages.metrics, is_live=live.is_ok, live_line=line(live, stats), is_ready=ready.is_ok,
        ready_line=line(ready, stats), at=time.monotonic(),
    )  # fmt: skip
    if with_metrics:
        pages = replace(pages, metrics=metrics_of(daemon).encode())
    exporter.pages = pages
