"""`enginectl doctor`: this machine looked over, each trouble with its remedy. Changes nothing."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from enginectl import text
from enginectl.asking import find_python
from enginectl.checkup import Finding, all_findings
from enginectl.commands.start import PythonOption
from enginectl.context import find_entry, one_name
from enginectl.errors import Exit
from enginectl.options import EngineOption, Format, NameArgument, OutputOption
from enginectl.output import out

EXAMPLES = ("enginectl doctor", "enginectl doctor --strict -o json")
MARKS = {"ok": "✔", "warn": "!", "fail": "✖"}


def command(
    name: NameArgument = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")] = False,
    python: PythonOption = None,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> int:
    """Check this machine: directories, the interpreter of engines and its packages, compiler, disk, memory, limits,
    threads, config, leftovers. Exits with 10 when a check has failed; -o json has each."""
    findings: list[Finding] = []
    for finding in all_findings(_python(one_name(name, engine), python)):
        findings.append(finding)
        _show(finding)
    failed = [one for one in findings if one.level == "fail" or (strict and one.level == "warn")]
    out.document(
        "Checkup",
        {"ok": not failed, "items": [one._asdict() for one in findings]},
    )
    warned = sum(one.level == "warn" for one in findings)
    out.say(f"{text.count(len(findings), 'check')}, {text.count(warned, 'warning')}, {len(failed)} failed")
    return int(Exit.PARTIAL if failed else Exit.OK)


def _python(name: str | None, given: str | None) -> str:
    """The interpreter that this engine would get. Raises NoSuchEngine."""
    from enginectl.rundir import load_settings

    if chosen := given or os.environ.get("ENGINECTL_PYTHON"):
        return find_python(chosen)
    recorded = load_settings(find_entry(name, running=False).name) if name else None
    return recorded.python if recorded is not None else sys.executable


def _show(finding: Finding) -> None:
    out.text(f"{MARKS[finding.level]} {finding.check:<18} {text.one_line(finding.found)}")
    if finding.fix:
        out.text(f"  {'':<18} fix: {text.one_line(finding.fix)}")
