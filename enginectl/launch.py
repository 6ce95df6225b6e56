"""Starting a supervisor in the background and learning that it serves, or why it does not.

Enters: a name whose settings were saved. Leaves: its control socket, or the error that the supervisor named. The child
is in a session of its own from its first instruction, so nothing that happens to this terminal reaches it."""

from __future__ import annotations

import atexit
import os
import selectors
import subprocess
import sys
import time

import msgspec
from msgspec import Struct

from enginectl.control import ErrorInfo
from enginectl.dirs import absolute_places
from enginectl.envelope import error_from
from enginectl.errors import CtlError, Deadline, StartFailed

LAUNCH_TIMEOUT_S = 20.0
_launched: list[subprocess.Popen[bytes]] = []


class Launched(Struct, kw_only=True):
    """The one line a supervisor writes to --ready-fd: it serves its control socket, or it gives up."""

    pid: int = 0
    control: str = ""
    error: ErrorInfo | None = None


def launch_supervisor(name: str, timeout_s: float = LAUNCH_TIMEOUT_S) -> Launched:
    """Returns once the control socket is served; the engine has only begun to start then. Raises Conflict when another
    supervisor holds the name, the supervisor's own error, or Deadline."""
    read_fd, write_fd = os.pipe()
    command = [sys.executable, "-m", "enginectl.supervisor", "--name", name, "--ready-fd", str(write_fd)]
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            pass_fds=[write_fd], start_new_session=True, cwd="/", env=child_environment(),
        )  # fmt: skip
    finally:
        os.close(write_fd)
    try:
        line = _read_line(read_fd, timeout_s)
    finally:
        os.close(read_fd)
    if line is None:
        child.kill()
        child.wait(5)
        raise Deadline(f"the supervisor of {name!r} did not answer in {timeout_s:.1f} s after its launch")
    try:
        launched = msgspec.json.decode(line, type=Launched)
    except msgspec.MsgspecError:
        raise _died(child, name) from None
    if launched.error is not None:
        child.wait(5)
        raise error_from(launched.error)
    if child.stderr is not None:
        child.stderr.close()
    _outlives_us(child)
    return launched


def _outlives_us(child: subprocess.Popen[bytes]) -> None:
    """No warning at our exit that it still runs; and reaped, if it ends first, at the next launch."""
    _launched[:] = [earlier for earlier in _launched if earlier.poll() is None]
    _launched.append(child)


@atexit.register
def _leave_them() -> None:
    for child in _launched:
        child.returncode = 0


def child_environment() -> dict[str, str]:
    """Ours, with every place in it made absolute, since the supervisor runs in /. Raises UsageError."""
    paths = [os.path.abspath(path or ".") for path in sys.path if path != ""]
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    given = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    wanted = given if here in paths[1:] else [here, *given]
    environment = {**os.environ, **absolute_places()}
    return {**environment, "PYTHONPATH": os.pathsep.join(wanted)} if wanted else environment


def _read_line(fd: int, timeout_s: float) -> bytes | None:
    """Up to a newline or end of file; None at the deadline."""
    end = time.monotonic() + timeout_s
    data = b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while b"\n" not in data:
            if not selector.select(max(0.0, end - time.monotonic())):
                return None
            chunk = os.read(fd, 65536)
            if not chunk:
                break
            data += chunk
    return data


def _died(child: subprocess.Popen[bytes], name: str) -> CtlError:
    _, text = child.communicate(timeout=10)
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]
    return StartFailed(
        f"the supervisor of {name!r} ended at once (exit {child.returncode})", cause=lines[-1] if lines else ""
    )
