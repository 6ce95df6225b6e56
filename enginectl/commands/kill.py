"""`enginectl kill`: KILL to the engine's process group, now. Asks first."""

from __future__ import annotations

import signal
import time

from enginectl import text
from enginectl.context import find_entry, look, one_name
from enginectl.control import ExitInfo
from enginectl.control_verbs import KillArgs
from enginectl.errors import Deadline, EngineDied, NotRunning, Unreachable
from enginectl.identity import ProcessId, child_sessions, identify, is_alive, is_stopped, send_signal, session_members
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, YesOption
from enginectl.output import out, plain
from enginectl.rundir import EngineEntry

EXAMPLES = ("enginectl kill qwen", "enginectl kill qwen --yes -o json")
KILL_TIMEOUT_S = 15.0
ORPHAN_S = 8.0
"""How long an engine and whoever speaks for it to a frontend get to end by themselves without their supervisor."""


def command(
    name: NameArgument = None, yes: YesOption = False, engine: EngineOption = None, output: OutputOption = Format.text
) -> None:
    """KILL the engine's process group now; requests in flight fail. For an engine that no longer reacts to stop."""
    entry = find_entry(one_name(name, engine))
    if entry.liveness in ("dead", "stale"):
        out.document("Killed", {"name": entry.name, "changed": False})
        return out.text(f"{entry.name}  not running")
    view = look(entry)
    flying = view.stats.running + view.stats.waiting if view.stats else 0
    what = f", {text.count(flying, 'request')} in flight" if flying else ""
    out.confirm(f"kill ends {entry.name} at once{what}", yes=yes, retry=f"enginectl kill {entry.name} --yes")
    info = _kill(entry)
    out.document("Killed", {"name": entry.name, "changed": True} | (plain(info) if info else {}))
    return out.text(f"{entry.name}  killed{f', {text.exit_text(info)}' if info else ''}")


def _kill(entry: EngineEntry) -> ExitInfo | None:
    """Through the supervisor; where that does not answer, both processes by their checked identity. Raises Deadline
    when somebody is left."""
    from enginectl.client import open_control

    if not is_stopped(entry.supervisor):
        try:
            with open_control(entry.name) as client:
                return client.request("kill", KillArgs(), ExitInfo, timeout_s=KILL_TIMEOUT_S)
        except EngineDied:
            return EngineEntry.read(entry.name).view().last_exit
        except (Unreachable, NotRunning, Deadline):
            entry = EngineEntry.read(entry.name)
    _kill_by_identity(entry)
    return None


def _kill_by_identity(entry: EngineEntry) -> None:
    """The supervisor first, which could start another engine; then everybody of the engine's group. One that nobody
    wrote down is a child of its supervisor: it ends with it, and is helped when it does not."""
    supervisor = entry.supervisor if is_alive(entry.supervisor) else None
    engine = entry.record.engine if entry.record is not None else None
    children = [who for pid in child_sessions(supervisor.pid) if (who := identify(pid))] if supervisor else []
    if supervisor is not None:
        send_signal(supervisor, signal.SIGKILL)
    known = [engine] if engine is not None and is_alive(engine) else []
    _end_groups(known)
    _gone([*([supervisor] if supervisor else []), *known, *children], ORPHAN_S)
    _end_groups(children)
    left = [who for who in (supervisor, *known, *children) if who is not None and not _gone([who], KILL_TIMEOUT_S)]
    if left:
        pids = ", ".join(str(who.pid) for who in left)
        raise Deadline(
            f"still alive {KILL_TIMEOUT_S:.0f} s after KILL: pid {pids}", try_=[f"enginectl status {entry.name}"]
        )
    if supervisor is None and not known:
        raise Unreachable(f"nobody of engine {entry.name!r} could be found", try_=[f"enginectl status {entry.name}"])
    out.say("  the supervisor did not answer; it and its engine were killed by their checked identity")


def _end_groups(leaders: list[ProcessId]) -> None:
    for leader in leaders:
        for pid in session_members(leader.pid) if is_alive(leader) else []:
            if (who := identify(pid)) is not None:
                send_signal(who, signal.SIGKILL)


def _gone(whom: list[ProcessId], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while any(is_alive(who) for who in whom):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
