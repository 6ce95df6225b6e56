"""The entry point: Ctrl-C before anything has begun."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ctl import ROOT
from tests.support.wait import wait_until

SLOW_IMPORT = """
import pathlib, time
pathlib.Path({mark!r}).touch()
time.sleep(60)
"""


@pytest.mark.parametrize("module", ["msgspec", "typer"])
def test_ctrl_c_while_it_imports_ends_it_without_a_traceback(tmp_path: Path, module: str) -> None:
    mark = tmp_path / "importing"
    (tmp_path / f"{module}.py").write_text(SLOW_IMPORT.format(mark=str(mark)))
    child = subprocess.Popen(
        [sys.executable, "-m", "enginectl", "ps"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_until(mark.exists, 20.0, "its imports")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
    finally:
        child.kill()
    assert (child.returncode, out) == (130, "")
    assert "Traceback" not in err and err.count("\n") <= 1
