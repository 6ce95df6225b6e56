"""Ends of processes, as process 1 of a container sees them: its own, and orphans that were handed to it."""

from __future__ import annotations

import subprocess
import sys

from tests.support.rig import REPOSITORY

REAP = """
import os, subprocess, sys
from enginectl.supervisor.child import reap_orphans

def ended(code):
    child = subprocess.Popen([sys.executable, "-S", "-c", f"raise SystemExit({code})"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    return child

orphan, engine, server = ended(1), ended(3), ended(4)
reap_orphans([engine.pid, server.pid])
reap_orphans([server.pid, engine.pid])
print(os.path.exists(f"/proc/{orphan.pid}"), engine.wait(), server.wait())
"""


def test_the_status_of_our_own_is_left_for_who_waits_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", REAP], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False 3 4\n", "")
