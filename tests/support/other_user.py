"""The command as another user, without a name, who owns one directory; only root can play it.

The tests' own interpreter may be closed to others: then the system's runs it, with the same packages."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ctl import ROOT, Result

UID = 54321


@functools.cache
def interpreter() -> str:
    """One that UID can run and that has the packages; empty when there is none, or we are not root."""
    if os.geteuid():
        return ""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for found in (sys.executable, shutil.which(version, path="/usr/bin:/usr/local/bin")):
        command = [found or "/nonexistent", "-c", "import enginectl, msgspec, zmq, typer"]
        try:
            done = subprocess.run(
                command,
                user=UID,
                group=UID,
                extra_groups=[],
                cwd="/",
                env=environment(),
                capture_output=True,
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return str(found)
    return ""


def environment() -> dict[str, str]:
    packages = [path for path in sys.path if path.endswith("site-packages")]
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join([str(ROOT), *packages])}


def as_other(*words: str, **environ: str) -> Result:
    """`enginectl WORDS` as UID, with nothing in the environment but this."""
    done = subprocess.run(
        [interpreter(), "-m", "enginectl", *words], user=UID, group=UID, extra_groups=[], cwd="/",
        env=environment() | environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    return Result(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of UID that it can reach: those of a test are root's alone."""
    if not interpreter():
        pytest.skip("only root can be another user, and that user needs an interpreter")
    path = Path(tempfile.mkdtemp(prefix="other-"))
    os.chown(path, UID, UID)
    yield path
    shutil.rmtree(path)
