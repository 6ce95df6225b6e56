"""Thread stacks of an engine: by utility when it answers, else by a signal that faulthandler hears at any time."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from enginectl.errors import CtlError, Deadline, Stalled
from enginectl.identity import read_stat

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon

QUIET_S = 0.3
MAX_BYTES = 1024**2


async def collect_stacks(daemon: Daemon, timeout_s: float) -> str:
    """Raises Stalled for a process that is stopped, Deadline when nothing comes."""
    child = daemon.child
    if child is None or child.exited.done:
        raise daemon.died()
    if daemon.health is not None and daemon.kind.has_own_utilities:
        try:
            return await daemon.calls.get("dump_stacks", str, timeout_s=min(1.0, timeout_s))
        except CtlError:
            pass
    stat = read_stat(daemon.engine_meter.pid if daemon.engine_meter is not None else child.pid)
    if stat is not None and stat.state in "Tt":
        raise Stalled(f"pid {child.pid} is stopped (state T): it can dump nothing", try_=[f"kill -CONT {child.pid}"])
    return await _by_signal(daemon, timeout_s)


async def _by_signal(daemon: Daemon, timeout_s: float) -> str:
    """What the engine's stderr says after SIGUSR2, until it is quiet again."""
    child, heard = daemon.child, bytearray()

    def tap(data: bytes) -> None:
        heard.extend(data[: MAX_BYTES - len(heard)])

    daemon.log_taps.append(tap)
    try:
        if child is not None and daemon.kind.is_guarded:
            child.send_core(signal.SIGUSR2)
        elif child is not None:
            child.send(signal.SIGUSR2)
        waited_s, before = 0.0, 0
        while waited_s < timeout_s and not (heard and len(heard) == before):
            before = len(heard)
            await daemon.loop.sleep(QUIET_S)
            waited_s += QUIET_S
    finally:
        daemon.log_taps.remove(tap)
    if not heard:
        raise Deadline(f"no stacks within {timeout_s:.1f} s, neither by utility nor by signal")
    return heard.decode("utf-8", "replace")
