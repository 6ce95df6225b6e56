"""`enginectl kill`: KILL to the engine's process group, now. Asks first."""

from __future__ import annotations

from enginectl import text
from enginectl.context import find_entry, look, one_name
from enginectl.control import ExitInfo, KillArgs
from enginectl.errors import CtlError, EngineDied, Unreachable
from enginectl.options import EngineOption, Format, NameArgument, OutputOption, YesOption
from enginectl.output import out, plain
from enginectl.rundir import EngineEntry

EXAMPLES = ("enginectl kill qwen", "enginectl kill qwen --yes -o json")
KILL_TIMEOUT_S = 15.0


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
    """Through the supervisor; where that does not answer, both processes by their checked identity."""
    from enginectl.client import open_control

    try:
        with open_control(entry.name) as client:
            return client.request("kill", KillArgs(), ExitInfo, timeout_s=KILL_TIMEOUT_S)
    except EngineDied:
        return EngineEntry.read(entry.name).view().last_exit
    except (Unreachable, CtlError) as error:
        if error.id not in ("E1411", "E1403", "E1101"):
            raise
        _kill_by_identity(entry)
        return None


def _kill_by_identity(entry: EngineEntry) -> None:
    import signal

    from enginectl.identity import send_signal

    if entry.record is not None:
        for who in (entry.record.supervisor, entry.record.engine):
            if who is not None:
                send_signal(who, signal.SIGKILL)
    out.say("  the supervisor did not answer; both processes were killed by their recorded identity")
