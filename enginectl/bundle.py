"""A bundle for a bug report: files by name go in, one tar.gz of mode 0600 comes out.

A living engine's supervisor collects; of a dead one the record, the youngest evidence and the logs are taken."""

from __future__ import annotations

import io
import os
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from enginectl.control_verbs import DumpArgs, DumpEnd, DumpFile
from enginectl.errors import CtlError, UsageError
from enginectl.log_reader import last_lines
from enginectl.record import json_bytes
from enginectl.redaction import redacted_settings, redacted_text, secrets_of

if TYPE_CHECKING:
    from enginectl.rundir import EngineEntry

MAX_FILE_BYTES = 16 * 1024**2
LOG_LINES = 1000
EVIDENCES = 3
"""Directories of evidence that a dead engine's bundle has, the youngest."""


@dataclass(slots=True)
class Gathered:
    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    evidence: str = ""


def default_path(name: str) -> Path:
    return Path(f"enginectl-{name}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")


def gather(entry: EngineEntry, timeout_s: float, *, with_logs: bool) -> Gathered:
    """From its supervisor; from its files when there is none or it does not answer."""
    found = Gathered()
    if entry.liveness == "running":
        try:
            _ask(entry, found, timeout_s, with_logs)
            return found
        except CtlError as error:
            found.missing.append(f"the supervisor's own word: {error.message}")
    _read(entry, found, with_logs)
    return found


def _ask(entry: EngineEntry, found: Gathered, timeout_s: float, with_logs: bool) -> None:
    from enginectl.client import open_control

    args = DumpArgs(timeout_s=timeout_s, logs=with_logs)
    with (
        open_control(entry.name) as client,
        client.stream("dump", args, DumpFile, DumpEnd, 5 * timeout_s + 10.0) as stream,
    ):
        found.files = {file.name: file.data for file in stream}
        if stream.end is not None:
            found.evidence, found.missing = stream.end.evidence, [*found.missing, *stream.end.missing]


def _read(entry: EngineEntry, found: Gathered, with_logs: bool) -> None:
    settings = entry.settings
    secrets = secrets_of(settings) if settings else []
    found.files["engine.json"] = json_bytes(entry.view())
    if settings is not None:
        found.files["settings.json"] = json_bytes(redacted_settings(settings))
    if with_logs:
        for path in (entry.paths.engine_log, entry.paths.supervisor_log):
            if path.exists():
                lines = "\n".join(last_lines(path, LOG_LINES)) + "\n"
                found.files[path.name] = redacted_text(lines, secrets).encode("utf-8", "replace")
    for folder in _evidence(entry.paths.evidence):
        found.evidence = found.evidence or str(folder)
        for path in sorted(folder.iterdir()):
            if path.suffix == ".log" and not with_logs:
                continue
            if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_FILE_BYTES:
                data = redacted_text(path.read_text(errors="replace"), secrets).encode("utf-8", "replace")
                found.files[f"evidence/{folder.name}/{path.name}"] = data


def _evidence(root: Path) -> list[Path]:
    """The youngest first."""
    try:
        return sorted((path for path in root.iterdir() if path.is_dir()), reverse=True)[:EVIDENCES]
    except OSError:
        return []


def write_bundle(path: Path, files: dict[str, bytes]) -> Path:
    """A new file of mode 0600. Raises UsageError when there is one, or it cannot be written."""
    top = path.name.removesuffix(".tar.gz").removesuffix(".tgz")
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists already", try_=["enginectl dump --out ANOTHER"]) from None
    except OSError as error:
        raise UsageError(f"cannot write {path}", cause=error.strerror or str(error)) from None
    try:
        with os.fdopen(fd, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as tar:
            for name, data in sorted(files.items()):
                info = tarfile.TarInfo(f"{top}/{name}")
                info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
                tar.addfile(info, io.BytesIO(data))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise UsageError(f"cannot write {path}", cause=error.strerror or str(error)) from None
    return path.absolute()
