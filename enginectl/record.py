"""record.json and the lock of one engine: what its supervisor writes down so that others find it, alive or dead.

Only the holder of the lock writes or removes. Readers take every file as possibly garbage."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from engine.messages import NIL, EngineCoreReadyResponse
from enginectl.control import ExitInfo, PhaseInfo, State
from enginectl.errors import BadRuntimeDir, Conflict
from enginectl.identity import ProcessId
from enginectl.settings import Scalar

T = TypeVar("T")
MAX_STATE_FILE_BYTES = 4 * 1024**2


class Record(Struct, kw_only=True):
    """The last word of a supervisor about its engine. No prompt, no output, no request id."""

    v: int = 1
    name: str
    instance: str = ""
    uid: int = 0
    runtime_dir: str = ""
    """Directory with this engine's sockets."""
    supervisor: ProcessId | None = None
    engine: ProcessId | None = None
    state: State = "starting"
    ended: bool = False
    """True once the supervisor has finished on purpose; a record without it and without its process is stale."""
    reason: str = ""
    model: str = ""
    engine_kind: str = "enginectl"
    engine_version: str = ""
    supervisor_version: str = ""
    started_at: float = 0.0
    """Wall clock, s."""
    ready_after_s: float | None = None
    ready: EngineCoreReadyResponse | None = None
    asked: dict[str, Scalar] = {}
    restarts: int = 0
    restart_policy: str = "no"
    phases: list[PhaseInfo] = []
    last_exit: ExitInfo | None = None


class LastStart(Struct, kw_only=True):
    """last_start.json: how long the last start that became ready took, whole and by phase."""

    ready_after_s: float = 0.0
    phases: dict[str, float] = {}


def read_json(path: Path, kind: type[T]) -> T | None:
    """None when it is missing, unreadable, too big or not what it should be."""
    try:
        return msgspec.json.decode(read_regular(path), type=kind)
    except (OSError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def read_regular(path: Path) -> bytes:
    """A small file. Raises OSError, also for one that is too big."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_STATE_FILE_BYTES:
            raise OSError(errno.EFBIG, "too big", str(path))
        return file.read(MAX_STATE_FILE_BYTES)


def open_regular(path: Path) -> BinaryIO:
    """For reading, and never waited for: a pipe or a device in its place is refused like a missing file. Raises
    OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(fd, "rb")


def write_json(path: Path, value: Struct) -> None:
    """Whole or not at all: a temporary file in the same directory, fsync, rename. Raises BadRuntimeDir."""
    data = json_bytes(value)
    try:
        write_atomic(path, data)
    except OSError as error:
        raise BadRuntimeDir(f"cannot write {path}", cause=str(error.strerror or error)) from None


def json_bytes(value: Struct | list[Struct]) -> bytes:
    """Indented JSON. By way of msgpack, since a Raw field holds msgpack wherever a struct has one."""
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(value))
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def read_record(path: Path) -> Record | None:
    """As read_json; its Raw field is what the rest of the program expects of one."""
    record = read_json(path, Record)
    if record is not None and record.ready is not None:
        record.ready.kv_events_config = NIL
    return record


def write_atomic(path: Path, data: bytes) -> None:
    """Mode 0600, whole or not at all. Raises OSError."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, 0o600)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # its directory may be gone too
            os.unlink(temporary)
        raise


class EngineLock:
    """An flock held for the life of a supervisor. Whoever holds it is the engine's only owner."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def take(self) -> None:
        """Does not wait. Raises Conflict when another supervisor holds it, BadRuntimeDir when it cannot be made."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise BadRuntimeDir(f"cannot open lock {self.path}", cause=str(error.strerror or error)) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise taken(self.path.parent.name, lock_holder(self.path) or 0, "its lock is held") from None
        with contextlib.suppress(OSError):  # for people only; the kernel knows the holder
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self.release()
        self._fd = fd

    def is_intact(self) -> bool:
        """Whether the file that others would lock is the one that is held here."""
        try:
            here, there = os.fstat(self._fd), os.lstat(self.path)
        except OSError:
            return False
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def release(self) -> None:
        """The file stays: removing it would let two holders exist."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def taken(name: str, pid: int, cause: str) -> Conflict:
    return Conflict(
        f"engine {name!r} has a supervisor already (pid {pid or 'unknown'})",
        cause=cause,
        try_=[f"enginectl status {name}", f"enginectl stop {name}"],
    )


def lock_holder(path: Path) -> int | None:
    """Who holds it now, without ever taking it: from /proc/locks, where our own kernel shows it. None: nobody; 0: a
    process of another pid namespace."""
    try:
        seen = os.stat(path)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    wanted = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}:{seen.st_ino}"
    for line in lines:
        fields = line.split()  # 7: FLOCK  ADVISORY  WRITE 4121 fd:01:131 0 EOF
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted:
            return max(0, int(fields[4]))
    return None
