"""The step library's file: compiled by the system's C compiler for this CPU, kept in the user's cache, checked.

Enters: the sources beside this file. Leaves: the path of a library that this user built and nobody changed. Every
failure is a BuildError with one line that says why. Imports no torch.

A file is named by a hash of sources and flags, made in a directory of its build and renamed, so any number of processes
may build at once. It ends with a digest of itself: what is cut short or changed is built again, never loaded. The
compiler's own temporary files are in that directory too; whoever is killed leaves it to the next build."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.errors import EngineError
from engine.model.store import is_own, make_shared_parents, models_root, shared_parents

DIRECTORY_SETTING = "ENGINECTL_NATIVE_DIR"
SOURCES = Path(__file__).parent / "src"
_MAIN = "model.c"
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = (
    *("-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"),
    *("-fPIC", "-shared", "-pthread", "-w"),
)
_BUILD_LIMIT_S = 180.0
_TRAILER = b"enginectl-library"
_MAX_LIBRARY_BYTES = 64 * 1024**2
_BUILDING = ".building-"
_STALE_S = 3600.0
_TRIES = 100
_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", *_AVX2)


class BuildError(EngineError):
    """The library cannot be had; the text is one line."""


@dataclass(frozen=True, slots=True)
class Level:
    """One way to compile: compiler flags and the CPU flags it needs, in the kernel's words."""

    flags: tuple[str, ...]
    needs: frozenset[str]


_PAIRS = ("-mavx512bf16", "-mavx512vnni", *_AVX512)
_WIDE = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512dq"})
_WIDE_PAIRS = _WIDE | {"avx512_bf16", "avx512_vnni"}
_LEVELS = (
    Level((*_PAIRS, "-mamx-tile", "-mamx-bf16"), _WIDE_PAIRS | {"amx_tile", "amx_bf16"}),
    Level(_PAIRS, _WIDE_PAIRS),
    Level(_AVX512, _WIDE),
    Level(_AVX2, frozenset({"avx2", "fma", "f16c"})),
)
_ANY = Level((), frozenset())


def levels() -> list[Level]:
    """What this CPU can run, the best first."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return [_ANY]
    flags = cpu_flags()
    return [level for level in _LEVELS if level.needs <= flags] + [_ANY]


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").partition(":")[2].split())


def cache_directory() -> Path:
    """ENGINECTL_NATIVE_DIR, else `native` beside the stored models."""
    given = os.environ.get(DIRECTORY_SETTING)
    return Path(given).absolute() if given else models_root().parent / "native"


def library_file(level: Level) -> Path:
    """Where the library of this source is, or would be."""
    digest = hashlib.sha256(f"{platform.machine()} {_libc()} {_FLAGS} {level.flags}".encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return cache_directory() / f"step-{digest.hexdigest()[:24]}.so"


def _libc() -> str:
    """A cache may be shared by systems, and a library that was linked with a newer one cannot be loaded by an older."""
    name = "CS_GNU_LIBC_VERSION"
    return os.confstr(name) or "" if name in os.confstr_names else ""


def find_library(level: Level) -> Path | None:
    """The file if it was built before. Raises BuildError when the directory is not this user's alone, or closed."""
    file = library_file(level)
    try:
        if not file.parent.exists():
            return None
        _check_private(file.parent)
    except OSError as error:
        raise BuildError(f"{file.parent} cannot be read ({error.strerror})") from None
    return file if is_whole(file) else None


def is_whole(file: Path) -> bool:
    """Whether this user wrote it, nobody else can, and it ends with the digest of what comes before."""
    try:
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        content = _read_own(handle)
    finally:
        os.close(handle)
    return content.endswith(_trailer(content[: -len(_TRAILER) - 32]))


def _read_own(handle: int) -> bytes:
    """The content of a plain file of sane size that this user alone can write; else nothing."""
    info = os.fstat(handle)
    if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
        return b""
    if info.st_size > _MAX_LIBRARY_BYTES:
        return b""
    with open(handle, "rb", closefd=False) as stream:
        return stream.read()


def _trailer(content: bytes) -> bytes:
    return _TRAILER + hashlib.sha256(content).digest()


class Build:
    """One compilation. `run` blocks; `cancel` ends it from another thread."""

    def __init__(self, level: Level) -> None:
        self._level = level
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False

    def run(self) -> Path:
        """Raises BuildError."""
        compiler = find_compiler()
        target = library_file(self._level)
        try:
            make_shared_parents(target.parent)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(target.parent)
            _remove_stale(target.parent)
            with _workplace(target.parent) as place:
                built = place / target.name
                self._compile(compiler, built)
                _finish(built, target)
        except OSError as error:
            raise BuildError(f"{target.parent} cannot be written ({error.strerror})") from None
        return target

    def cancel(self) -> None:
        self._cancelled = True
        if self._process is not None:
            _end(self._process)

    def _compile(self, compiler: str, output: Path) -> None:
        command = [compiler, *_FLAGS, *self._level.flags, "-o", str(output), str(SOURCES / _MAIN), "-lm"]
        nice = shutil.which("nice")  # what is being served meanwhile comes first
        if nice is not None:
            command = [nice, "-n", "10", *command]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, "TMPDIR": str(output.parent)},
                process_group=0,  # a compiler has children, and they hold the pipe
            )
        except OSError as error:
            raise BuildError(f"{compiler} cannot be run ({error.strerror})") from None
        with self._process as process:
            if self._cancelled:
                _end(process)
            try:
                _, complaint = process.communicate(timeout=_BUILD_LIMIT_S)
            except subprocess.TimeoutExpired:
                _end(process)
                raise BuildError(f"{compiler} took longer than {_BUILD_LIMIT_S:.0f} s") from None
        if process.returncode != 0:
            raise BuildError(f"{compiler} failed with status {process.returncode}: {_first_error(complaint)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """The compiler and all that it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _first_error(complaint: bytes) -> str:
    lines = complaint.decode(errors="replace").strip().splitlines()
    return next((line for line in lines if "error" in line), lines[-1] if lines else "no output")


def find_compiler() -> str:
    """Raises BuildError."""
    for name in _COMPILERS:
        if path := shutil.which(name):
            return path
    raise BuildError(f"no C compiler on PATH ({', '.join(_COMPILERS)})")


def _finish(built: Path, target: Path) -> None:
    try:
        content = built.read_bytes()
        with open(built, "ab") as stream:
            stream.write(_trailer(content))
        built.chmod(0o600)
        os.replace(built, target)
    except OSError as error:
        raise BuildError(f"{target} cannot be written ({error.strerror})") from None


def _check_private(directory: Path) -> None:
    """Whoever can write here, or put another directory in its place, could have us run their code. Raises OSError."""
    for path in (*shared_parents(directory), directory):
        if not is_own(path, 0o077 if path == directory else 0o022):
            raise BuildError(f"{path} must be a directory of this user alone: chmod 700, or remove it")


@contextlib.contextmanager
def _workplace(directory: Path) -> Iterator[Path]:
    """A directory for one build, locked while it lives: an unlocked one is nobody's. Raises OSError."""
    place, lock = _take_workplace(directory)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def _take_workplace(directory: Path) -> tuple[Path, int]:
    """Another build may find it before it is locked, and remove it."""
    for _ in range(_TRIES):
        place = Path(tempfile.mkdtemp(prefix=_BUILDING, dir=directory))
        try:
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        with contextlib.suppress(OSError):  # a file system without locks: nobody removes it
            fcntl.flock(lock, fcntl.LOCK_EX)
        if place.exists():
            return place, lock
        os.close(lock)
    raise OSError(errno.EBUSY, "other builds remove what this one makes", str(directory))


def _remove_stale(directory: Path) -> None:
    """What builds that were killed left behind."""
    for path in directory.glob(f"{_BUILDING}*"):
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                _remove_abandoned(path)
            elif time.time() - path.lstat().st_mtime > _STALE_S:
                path.unlink()


def _remove_abandoned(place: Path) -> None:
    """Raises OSError while its build lives."""
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(lock)
