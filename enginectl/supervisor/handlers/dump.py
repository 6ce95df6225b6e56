"""`dump`: everything a bug report needs and no word of any prompt; kept as evidence and handed to the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enginectl.control_verbs import DumpArgs, DumpEnd, DumpFile
from enginectl.supervisor.dumping import collect
from enginectl.supervisor.evidence import save_files

if TYPE_CHECKING:
    from enginectl.supervisor.daemon import Daemon
    from enginectl.supervisor.server import Session


async def handle(daemon: Daemon, session: Session, args: DumpArgs) -> None:
    files, missing = await collect(daemon, min(max(args.timeout_s, 0.1), 60.0), with_logs=args.logs)
    evidence = save_files(daemon.paths.evidence, "dump", files)
    if evidence:
        daemon.events.add("evidence", evidence)
    else:
        missing.append("evidence: the directory could not be written")
    for name, data in files.items():
        session.item(DumpFile(name=name, data=data))
    session.end(DumpEnd(evidence=evidence, missing=missing))
