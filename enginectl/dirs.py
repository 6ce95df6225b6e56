"""Where things are kept: the state directory (evidence, settings, locks) and the runtime directory (sockets).

Enters: the environment. Leaves: paths that were checked to be ours. Creates directories as 0700 before anything is put
in them and refuses, with the owner and the remedy, whatever somebody else could write to."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
import zlib
from pathlib import Path

from enginectl.errors import BadRuntimeDir, UsageError
from enginectl.owners import home_of, owner_name, sudo

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
SOCKET_PATH_BYTES = 107
"""What the kernel allows for the path of a unix socket."""
LONGEST_SOCKET = "control.sock"
STATE_SETTING = "ENGINECTL_STATE_DIR"
RUNTIME_SETTING = "ENGINECTL_RUNTIME_DIR"


PLACES = (
    STATE_SETTING, RUNTIME_SETTING, "ENGINECTL_CACHE_DIR", "ENGINECTL_NATIVE_DIR", "ENGINECTL_CONFIG", "HOME",
    "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
)  # fmt: skip
"""Variables that name a place. A supervisor and its engine run in another working directory than the command."""


def absolute_places() -> dict[str, str]:
    """The places that are set relative to the working directory, as what they mean here. Raises UsageError."""
    given = {key: value for key in PLACES if (value := os.environ.get(key)) and not os.path.isabs(value)}
    try:
        return {key: os.path.abspath(value) for key, value in given.items()}
    except FileNotFoundError:
        raise UsageError(
            f"{next(iter(given))} is relative, and the working directory is gone",
            try_=["cd to a directory that exists"],
        ) from None


def check_name(name: str) -> str:
    """The name itself. Raises UsageError when an engine cannot be called that."""
    if NAME_PATTERN.fullmatch(name) is None:
        raise UsageError(
            f"not an engine name: {name[:100]!r}",
            cause="a name has 1 to 80 letters, digits, '_', '.', '-' and begins with a letter or digit",
        )
    return name


def state_root() -> Path:
    """The state directory; not created here. A relative setting counts from the working directory."""
    if given := os.environ.get(STATE_SETTING):
        return Path(given).absolute()
    if base := os.environ.get("XDG_STATE_HOME"):
        return Path(base).absolute() / "enginectl"
    home = own_home()
    return home / ".local" / "state" / "enginectl" if home else Path(f"/tmp/enginectl-{os.geteuid()}/state")


def runtime_root() -> Path:
    """The runtime directory; not created here. An XDG_RUNTIME_DIR that is not a directory of ours is passed over."""
    if given := os.environ.get(RUNTIME_SETTING):
        return Path(given).absolute()
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and not passed_over():
        return Path(base).absolute() / "enginectl"
    return Path(f"/tmp/enginectl-{os.geteuid()}")


def passed_over() -> str:
    """Why XDG_RUNTIME_DIR is not used; empty when it is, or is not wanted."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    if not base or os.environ.get(RUNTIME_SETTING):
        return ""
    try:
        owner = os.stat(base).st_uid
    except OSError as error:
        return f"XDG_RUNTIME_DIR {base}: {_reason(error)}"
    if owner != os.geteuid():
        return f"XDG_RUNTIME_DIR {base} belongs to {owner_name(owner)} (uid {owner})"
    if not (os.path.isdir(base) and os.access(base, os.W_OK | os.X_OK)):
        return f"XDG_RUNTIME_DIR {base} is no directory that can be written"
    return ""


def own_home() -> Path | None:
    """HOME, else what the system says. One that is / or is not there is none."""
    candidates = [os.environ.get("HOME")]
    try:
        candidates.append(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pass
    for text in candidates:
        if text and text != "/" and Path(text).is_dir():
            return Path(text)
    return None


def runtime_name(root: Path, name: str, state: Path) -> str:
    """The directory of one engine below the runtime root: its name, or a short hash where the path of a socket would
    be too long. Raises BadRuntimeDir when even that does not fit."""
    if _fits(root, name):
        return name
    short = f"x{zlib.crc32(f'{state}/{name}'.encode()):08x}"
    if _fits(root, short):
        return short
    longest = root / short / LONGEST_SOCKET
    raise BadRuntimeDir(
        f"runtime directory is too long for sockets: {root}",
        cause=f"a socket path may have {SOCKET_PATH_BYTES} bytes; {longest} has {len(os.fsencode(longest))}",
        try_=[f"{RUNTIME_SETTING}=/tmp/enginectl-{os.geteuid()} enginectl start ..."],
    )


def _fits(root: Path, name: str) -> bool:
    return len(os.fsencode(root / name / LONGEST_SOCKET)) <= SOCKET_PATH_BYTES


def make_root(path: Path, setting: str) -> Path:
    """Creates a root directory, or checks the one that is there: ours, no link, writable by nobody else."""
    if setting == STATE_SETTING:
        refuse_base_of_another(path)
    if path.parent.name.startswith("enginectl-") and path.parent.parent == Path("/tmp"):
        make_root(path.parent, setting)
    _make(path, setting, parents=True)
    return _verify(path, setting, forbidden=0o022)


def make_private(path: Path, setting: str) -> Path:
    """Creates a 0700 directory, or checks the one that is there: ours, no link, closed to everybody else."""
    _make(path, setting, parents=False)
    return _verify(path, setting, forbidden=0o077)


def verify_root(path: Path, setting: str) -> Path:
    """A root directory that is there, checked as make_root does. Raises BadRuntimeDir."""
    return _verify(path, setting, forbidden=0o022)


def verify_private(path: Path, setting: str) -> bool:
    """True when it is there and safe to read, False when it is not there. Looking writes nothing, so a directory on a
    file system that was mounted read-only will do. Raises BadRuntimeDir."""
    if not os.path.lexists(path):
        return False
    _verify(path, setting, forbidden=0o077, wanted=os.R_OK | os.X_OK)
    return True


def verify_looked(root: Path) -> None:
    """Whether the state directory may be looked into: that nothing is there is an answer, that it is somebody else's or
    closed is none. Raises BadRuntimeDir."""
    for path in (root, root / "engines"):
        try:
            owner = os.stat(path).st_uid
        except PermissionError:
            raise _behind_closed(path) from None
        except OSError:
            return
        if owner != os.geteuid():
            raise _of_another(path, STATE_SETTING, owner)
        if not os.access(path, os.R_OK | os.X_OK):
            raise _closed(path, STATE_SETTING)


def refuse_base_of_another(path: Path) -> None:
    """Root makes no state directory in the XDG directory of another user, as `sudo -E` hands it on: its owner could
    neither use nor remove it. One that was named with our own setting is meant."""
    base = os.environ.get("XDG_STATE_HOME")
    if os.geteuid() or not base or os.environ.get(STATE_SETTING) or os.path.lexists(path):
        return
    there = next(parent for parent in path.parents if parent.exists())
    if owner := there.stat().st_uid:
        raise BadRuntimeDir(
            f"refusing to make {path}: {there} belongs to {owner_name(owner)} (uid {owner}), you are root",
            cause=f"XDG_STATE_HOME is {base}",
            try_=[_as_user(owner), "env -u XDG_STATE_HOME enginectl ...", _remedy(STATE_SETTING)],
        )


def _as_user(uid: int) -> str:
    """The command that asks about the state directory as whoever owns it."""
    home = home_of(uid)
    is_usual = home is not None and state_root() == home / ".local" / "state" / "enginectl"
    return f"{sudo(uid)} {'' if is_usual else f'env {STATE_SETTING}={shlex.quote(str(state_root()))} '}enginectl ..."


def _of_another(path: Path, setting: str, owner: int) -> BadRuntimeDir:
    """To take it from an owner whose engine may run is never the way; what root left in a place of ours may be taken
    once nothing runs there."""
    who = f"{owner_name(owner)} (uid {owner}), you are {owner_name(os.geteuid())} (uid {os.geteuid()})"
    tries = [*([_as_user(owner)] if setting == STATE_SETTING else []), _remedy(setting)]
    if owner == 0 and os.geteuid() and os.stat(path.parent).st_uid == os.geteuid():
        tries.insert(-1, f"when nothing of theirs runs there: sudo chown -R {os.geteuid()} {shlex.quote(str(path))}")
    return BadRuntimeDir(f"refusing {path}: it belongs to {who}", try_=tries)


def _behind_closed(path: Path) -> BadRuntimeDir:
    door = next(parent for parent in path.parents if _is_there(parent))
    owner = os.stat(door).st_uid
    if owner == os.geteuid():
        return BadRuntimeDir(
            f"cannot look into {path}: {door} is closed", try_=[f"chmod u+rwx {shlex.quote(str(door))}"]
        )
    return BadRuntimeDir(
        f"cannot look into {path}: {door} belongs to {owner_name(owner)} (uid {owner}) and is closed to you",
        try_=[_as_user(owner), _remedy(STATE_SETTING)],
    )


def _is_there(path: Path) -> bool:
    try:
        os.stat(path)
    except OSError:
        return False
    return True


def _make(path: Path, setting: str, *, parents: bool) -> None:
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # a umask may have taken our own rights away
    except FileExistsError:
        return
    except OSError as error:
        raise BadRuntimeDir(f"cannot create {path}", cause=_reason(error), try_=[_remedy(setting)]) from None


def _verify(path: Path, setting: str, *, forbidden: int, wanted: int = os.R_OK | os.W_OK | os.X_OK) -> Path:
    try:
        seen = os.lstat(path)
    except OSError as error:
        raise BadRuntimeDir(f"cannot use {path}", cause=_reason(error), try_=[_remedy(setting)]) from None
    if stat.S_ISLNK(seen.st_mode):
        raise BadRuntimeDir(f"refusing {path}: it is a symbolic link", try_=[f"set {setting} to the real path"])
    if not stat.S_ISDIR(seen.st_mode):
        raise BadRuntimeDir(f"refusing {path}: it is not a directory", try_=[_remedy(setting)])
    if seen.st_uid != os.geteuid():
        raise _of_another(path, setting, seen.st_uid)
    if seen.st_mode & forbidden:
        mode = oct(stat.S_IMODE(seen.st_mode))
        raise BadRuntimeDir(f"refusing {path}: others may enter or write it (mode {mode})", try_=[f"chmod 700 {path}"])
    if not os.access(path, wanted):
        raise _closed(path, setting)
    return path


def _closed(path: Path, setting: str) -> BadRuntimeDir:
    try:
        is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        is_read_only = False
    if is_read_only:
        return BadRuntimeDir(f"refusing {path}: its file system is mounted read-only", try_=[_remedy(setting)])
    word = "writable" if os.access(path, os.R_OK | os.X_OK) else "readable"
    return BadRuntimeDir(f"refusing {path}: it is not {word}", try_=[f"chmod 700 {path}", _remedy(setting)])


def _reason(error: OSError) -> str:
    return f"{error.strerror or error} ({error.filename})" if error.filename else str(error)


def _remedy(setting: str) -> str:
    return f"set {setting} to a directory of your own"
