"""`enginectl resume`: the scheduler runs again after a pause. Already so is success."""

from __future__ import annotations

from enginectl.context import connect, one_name
from enginectl.control_verbs import ResumeArgs
from enginectl.gating import gate, report
from enginectl.options import EngineOption, Format, NameArgument, OutputOption

EXAMPLES = ("enginectl resume qwen", "enginectl resume -o json")
TIMEOUT_S = 30.0


def command(name: NameArgument = None, engine: EngineOption = None, output: OutputOption = Format.text) -> None:
    """Schedule again after `pause`: what was held goes on, what waited starts."""
    with connect(one_name(name, engine)) as connected:
        before = connected.status()
        after = gate(connected, "resume", ResumeArgs(timeout_s=TIMEOUT_S), TIMEOUT_S)
    report(after, changed=before.state == "paused", line=f"{after.name}  schedules requests")
