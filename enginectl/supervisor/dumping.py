"""What a dump consists of: named files, each made even when the engine no longer answers.

Reads the daemon, asks the engine with a deadline for each question, changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from engine.reports import EngineDescription, EngineStats
from enginectl import __version__
from enginectl.control_flight import FlightHead, FlightStep
from enginectl.errors import CtlError
from enginectl.record import json_bytes
from enginectl.redaction import redacted_settings, redacted_text, secrets_of
from enginectl.supervisor.flight import to_json_lines, wall_offset_s
from enginectl.supervisor.handlers.requests import merge
from enginectl.supervisor.logs import last_lines
from enginectl.supervisor.view import engine_view, request_views

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

LOG_LINES = 1000


class Versions(Struct, kw_only=True):
    enginectl: str
    python: str
    platform: str
    pyzmq: str
    msgspec: str
    engine: str = ""


async def collect(daemon: Daemon, timeout_s: float, *, with_logs: bool) -> tuple[dict[str, bytes], list[str]]:
    """File name -> content, and what could not be had."""
    missing: list[str] = []
    files = {
        "engine.json": json_bytes(engine_view(daemon)),
        "events.json": json_bytes(list(daemon.events.last(500))),
        "settings.json": json_bytes(redacted_settings(daemon.settings)),
        "versions.json": json_bytes(versions(daemon.description.version if daemon.description else "")),
        "requests.json": json_bytes(await _requests(daemon)),
        "flight.jsonl": await flight_lines(daemon, timeout_s),
    }
    if daemon.description is not None:
        files["description.json"] = json_bytes(daemon.description)
    for name, ask in (("stacks.txt", _stacks), ("stats.json", _stats)):
        try:
            files[name] = await ask(daemon, timeout_s)
        except CtlError as error:
            missing.append(f"{name}: {error.message}")
    if with_logs:
        secrets = secrets_of(daemon.settings)
        for path in (daemon.paths.engine_log, daemon.paths.supervisor_log):
            files[path.name] = redacted_text("\n".join(last_lines(path, LOG_LINES)) + "\n", secrets).encode()
    return files, missing


async def _requests(daemon: Daemon) -> list[Struct]:
    table = await daemon.tables.get() if daemon.health is not None else None
    mine = {view.id: view for view in request_views(daemon)}
    rows: list[Struct] = [merge(row, mine.pop(row.id, None)) for row in table.items] if table else []
    return rows + list(mine.values())


async def _stacks(daemon: Daemon, timeout_s: float) -> bytes:
    from enginectl.supervisor.stacks import collect_stacks

    return (await collect_stacks(daemon, timeout_s)).encode("utf-8", "replace")


async def _stats(daemon: Daemon, timeout_s: float) -> bytes:
    if daemon.health is None:
        raise daemon.died()
    return json_bytes(await daemon.calls.get("stats", EngineStats, timeout_s=timeout_s))


async def flight_lines(daemon: Daemon, timeout_s: float) -> bytes:
    """The engine's own record when it answers, else what was seen of it."""
    if daemon.health is not None and _has_utility(daemon.description, "flight_record"):
        try:
            rows = await daemon.calls.get("flight_record", list[FlightStep], timeout_s=timeout_s)
            return to_json_lines(flight_head(daemon, "engine"), rows)
        except CtlError as error:
            daemon.write_log(f"flight_record: {error.message}")
    return seen_flight(daemon)


def seen_flight(daemon: Daemon) -> bytes:
    return to_json_lines(flight_head(daemon, "supervisor"), daemon.flight.steps())


def flight_head(daemon: Daemon, seen_by: str) -> FlightHead:
    ready, settings = daemon.ready, daemon.settings
    return FlightHead(
        name=settings.name, instance=daemon.instance, engine=settings.engine, model=settings.model,
        kv_blocks=ready.num_gpu_blocks if ready else None, max_num_seqs=ready.max_num_seqs if ready else None,
        wall_offset_s=wall_offset_s(), seen_by="engine" if seen_by == "engine" else "supervisor",
    )  # fmt: skip


def _has_utility(description: EngineDescription | None, name: str) -> bool:
    return description is not None and any(row.name == name for row in description.utilities)


def versions(engine: str = "") -> Versions:
    import platform

    import zmq

    return Versions(
        enginectl=__version__, python=platform.python_version(), platform=platform.platform(),
        pyzmq=zmq.pyzmq_version(), msgspec=msgspec.__version__, engine=engine,
    )  # fmt: skip
