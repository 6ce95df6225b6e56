"""`enginectl version`: of the tool, and of the supervisors that run. Reads only."""

from __future__ import annotations

from enginectl import __version__
from enginectl.errors import BadRuntimeDir
from enginectl.options import Format, OutputOption
from enginectl.output import out

EXAMPLES = ("enginectl version", "enginectl version -o json")


def command(output: OutputOption = Format.text) -> None:
    """Print the versions of the tool, of Python, and of running supervisors."""
    import platform

    from enginectl.control import CONTROL_VERSION
    from enginectl.rundir import list_engines

    engines = {}
    try:
        for entry in list_engines():
            if entry.liveness == "running" and entry.record is not None:
                engines[entry.name] = entry.record.supervisor_version
    except BadRuntimeDir as error:
        out.error_text(error)
    out.document(
        "Version",
        {"version": __version__, "control": CONTROL_VERSION, "python": platform.python_version(), "engines": engines},
    )
    out.text(f"enginectl {__version__}   control protocol {CONTROL_VERSION}   python {platform.python_version()}")
    for name, version in engines.items():
        how = f"`enginectl drain {name} && enginectl start {name}` replaces it"
        note = "" if version == __version__ else f"   (another version; {how})"
        out.text(f"  {name}  supervisor {version or 'unknown'}{note}")
