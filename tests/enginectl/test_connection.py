"""Connections of one program: what a forked child may do while its parent is in the middle of one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import zmq

from enginectl import connection
from tests.support.wait import wait_until


def test_a_child_that_was_forked_in_the_middle_of_one_makes_its_own(tmp_path: Path) -> None:
    """A thread of the parent holds the lock at the fork, and there is no such thread in the child."""
    connection.open_socket(zmq.DEALER, tmp_path / "s").close(0)
    with connection._lock:
        child = os.fork()
        if not child:
            signal.alarm(20)
            connection.open_socket(zmq.DEALER, tmp_path / "s").close(0)
            os._exit(0 if len(connection._contexts) == 2 else 1)
    ended = wait_until(lambda: found if (found := os.waitpid(child, os.WNOHANG))[0] else None, 30.0, "its end")
    assert ended is not None and os.waitstatus_to_exitcode(ended[1]) == 0
