"""What `doctor` looks at: each check reads a little of this machine and says ok, warn or fail, with the remedy.

Enters: the environment, /proc, the two directories, one run of the engine's interpreter. Leaves: Finding rows. Creates,
changes and removes nothing."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from enginectl import dirs, text
from enginectl.errors import CtlError
from enginectl.models import CACHE_SETTING, cache_root, models_root

Level = Literal["ok", "warn", "fail"]
OLDEST_PYTHON = (3, 11)
LEAST_DISK_BYTES = 2 * 1024**3
LEAST_MEMORY_BYTES = 1024**3
LEAST_SHM_BYTES = 64 * 1024**2
LEAST_FILES = 1024
SAMPLE_NAME = "n" * 20
"""A name as long as people give."""


COMPILERS = ("cc", "gcc", "clang")
TORCH_FIX = "install torch for CUDA into that interpreter, or start with --set device=cpu"
SLOWER = "without it decoding on a CPU is slower"


class Finding(NamedTuple):
    check: str
    level: Level
    found: str
    fix: str = ""


def directories() -> Iterator[Finding]:
    """Owner, mode, and room for a socket's path; as a start would see them."""
    for check, root, setting in (
        ("state directory", dirs.state_root(), dirs.STATE_SETTING),
        ("runtime directory", dirs.runtime_root(), dirs.RUNTIME_SETTING),
    ):
        try:
            why = dirs.passed_over() if setting == dirs.RUNTIME_SETTING else ""
            yield Finding(check, "ok", _directory(root, setting) + (f"; {why}" if why else ""))
        except CtlError as error:
            found = error.message + (f" ({error.cause})" if error.cause else "")
            yield Finding(check, "fail", found, "; or ".join(error.try_) or f"set {setting}")
    try:
        short = dirs.runtime_name(dirs.runtime_root(), SAMPLE_NAME, dirs.state_root())
    except CtlError as error:
        yield Finding("socket paths", "fail", error.cause, "; or ".join(error.try_))
    else:
        note = "" if short == SAMPLE_NAME else "; long names get a short hash there"
        yield Finding("socket paths", "ok", f"at most {dirs.SOCKET_PATH_BYTES} bytes{note}")


def _directory(root: Path, setting: str) -> str:
    """Raises BadRuntimeDir for one that is there and not ours, or that cannot be made."""
    if os.path.lexists(root):
        dirs.verify_root(root, setting)
        return f"{root}, mode {stat.S_IMODE(os.lstat(root).st_mode):o}"
    dirs.refuse_base_of_another(root)
    parent = next(path for path in root.parents if path.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise CtlError(
            f"{root} cannot be made: {parent} is not writable", try_=[f"set {setting} to a directory of your own"]
        )
    return f"{root}, made at the first start"


def interpreter(python: str) -> Iterator[Finding]:
    """The interpreter that engines get: its version, its packages, and what torch found."""
    import subprocess

    from enginectl.launch import child_environment

    try:
        done = subprocess.run(
            [python, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=60,
            cwd="/",
            env=child_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("python", "fail", f"{python} does not run: {error}", "name another one: --python PATH")
        return
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        yield Finding("python", "fail", f"{python}: {last}", "name another one: --python PATH")
        return
    facts = dict(line.partition("=")[::2] for line in done.stdout.splitlines() if "=" in line)
    yield from _python_findings(python, facts)


_PROBE = """
import importlib.metadata as m, importlib.util as u, sys
print("version=%d.%d.%d" % sys.version_info[:3])
for name in ("engine", "zmq", "msgspec", "torch", "numpy", "safetensors", "gguf"):
    try:
        found = u.find_spec(name) is not None
        said = "" if name == "engine" else m.version("pyzmq" if name == "zmq" else name)
    except Exception as error:
        found, said = False, str(error)
    print(f"{name}={(said or 'there') if found else ''}")
"""
PACKAGES = ("engine", "zmq", "msgspec", "torch", "numpy", "safetensors")


def _python_findings(python: str, facts: dict[str, str]) -> Iterator[Finding]:
    version = facts.get("version", "0.0")
    is_new = tuple(int(part) for part in version.split(".")[:2]) >= OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    yield Finding(
        "python", "ok" if is_new else "fail", f"{python} {version}",
        "" if is_new else f"Python {oldest} or newer is needed: --python PATH",
    )  # fmt: skip
    missing = [name for name in PACKAGES if not facts.get(name)]
    there = ", ".join(f"{name} {facts[name]}" for name in PACKAGES[1:] if facts.get(name))
    if missing:
        fix = f"{python} -m pip install 'enginectl[engine]'"
        yield Finding("packages", "fail", f"missing: {', '.join(missing)}", fix)
    else:
        yield Finding("packages", "ok", there)
    if facts.get("torch", "").endswith("+cpu") and os.path.exists("/dev/nvidiactl"):
        yield Finding("gpu", "warn", f"there is one, but torch {facts['torch']} is built for CPUs", TORCH_FIX)
    if not facts.get("gguf") and not missing:
        fix = f"{python} -m pip install gguf"
        yield Finding("gguf", "warn", "missing: .gguf models cannot be converted", fix)


def compiler() -> Iterator[Finding]:
    """A C compiler with its headers: a step of the model is compiled for this CPU at the first start."""
    import subprocess

    found = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if found is None:
        yield Finding("compiler", "warn", f"none; {SLOWER}", "apt-get install gcc libc6-dev")
        return
    source = "#include <pthread.h>\n#include <math.h>\nint main(void) { return 0; }\n"
    argv = [found, "-x", "c", "-fsyntax-only", "-"]
    try:
        done = subprocess.run(argv, input=source, capture_output=True, text=True, timeout=30, check=False)
        said = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[0] if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    if said:
        yield Finding("compiler", "warn", f"{found}: {said}; {SLOWER}", "apt-get install gcc libc6-dev")
    else:
        yield Finding("compiler", "ok", found)


def disk() -> Iterator[Finding]:
    """Room where models are kept and where engines write their logs."""
    rooms: dict[int, list[tuple[str, str, Path]]] = {}
    for what, root, setting in (
        ("models", models_root(), CACHE_SETTING),
        ("state", dirs.state_root(), dirs.STATE_SETTING),
    ):
        parent = next(path for path in (root, *root.parents) if path.exists())
        rooms.setdefault(os.stat(parent).st_dev, []).append((what, setting, parent))
    for uses in rooms.values():
        places = " and ".join(dict.fromkeys(str(parent) for _, _, parent in uses))
        free = shutil.disk_usage(uses[0][2]).free
        settings = " and ".join(setting for _, setting, _ in uses)
        fix = f"make room on {places}, or set {settings} to another disk" if free < LEAST_DISK_BYTES else ""
        level: Level = "warn" if fix else "ok"
        yield Finding("disk", level, f"{text.size(free)} free for {' and '.join(u[0] for u in uses)} ({places})", fix)


def memory() -> Iterator[Finding]:
    available = _meminfo("MemAvailable")
    limit = _cgroup_limit()
    room = min((value for value in (available, limit) if value is not None), default=None)
    if room is None:
        yield Finding("memory", "warn", "not known on this system")
        return
    note = f", cgroup limit {text.size(limit)}" if limit is not None else ""
    is_low = room < LEAST_MEMORY_BYTES
    fix = "stop something, or start with --set kv_memory=256MiB" if is_low else ""
    yield Finding("memory", "warn" if is_low else "ok", f"{text.size(room)} available{note}", fix)


def _meminfo(key: str) -> int | None:
    try:
        found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def _cgroup_limit() -> int | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            said = Path(path).read_text().strip()
        except OSError:
            continue
        return int(said) if said.isdigit() and int(said) < 1 << 60 else None
    return None


def shared_memory() -> Iterator[Finding]:
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        yield Finding("shared memory", "warn", "/dev/shm is missing", "mount -t tmpfs tmpfs /dev/shm")
        return
    is_low = free < LEAST_SHM_BYTES
    fix = "docker run --shm-size 1g, or make room in /dev/shm" if is_low else ""
    yield Finding("shared memory", "warn" if is_low else "ok", f"{text.size(free)} free in /dev/shm", fix)


def limits() -> Iterator[Finding]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    fix = "as root: ulimit -n 65536" if most < LEAST_FILES else ""
    yield Finding("open files", "warn" if fix else "ok", f"at most {soft:,}; a supervisor takes {most:,}", fix)
    core, _ = resource.getrlimit(resource.RLIMIT_CORE)
    if core == resource.RLIM_INFINITY:
        yield Finding("core dumps", "ok", "without limit: a crashed engine writes its whole memory to disk")


def threads() -> Iterator[Finding]:
    """As many threads as cores is what torch takes by itself; more than that is slow, and one is slower."""
    cores = len(os.sched_getaffinity(0))
    said = os.environ.get("OMP_NUM_THREADS", "")
    if not said:
        yield Finding("threads", "ok", f"{cores} cores; OMP_NUM_THREADS is not set")
        return
    count = int(said) if said.isdigit() else 0
    if 1 <= count <= cores and (count > 1 or cores == 1):
        yield Finding("threads", "ok", f"OMP_NUM_THREADS={said}, {cores} cores")
        return
    why = "one core computes" if count == 1 else "more threads than cores" if count > cores else "not a number"
    yield Finding("threads", "warn", f"OMP_NUM_THREADS={said}, {cores} cores: {why}", "unset OMP_NUM_THREADS")


def leftovers() -> Iterator[Finding]:
    """Supervisors that do not answer, engines without a supervisor, records without a process, temporary files of
    broken conversions."""
    from enginectl.context import look
    from enginectl.rundir import list_engines
    from enginectl.silence import why_silent

    try:
        entries = list_engines()
    except CtlError as error:
        yield Finding("leftovers", "fail", error.message, "; or ".join(error.try_))
        return
    silent = [entry for entry in entries if entry.liveness == "running" and look(entry).state == "unreachable"]
    for entry in silent:
        found = f"{entry.name}: {why_silent(entry.supervisor)}"
        yield Finding("supervisor", "fail", found, f"enginectl kill {entry.name}")
    lost = [entry.name for entry in entries if entry.liveness == "lost"]
    stale = [entry.name for entry in entries if entry.liveness == "stale"]
    if lost:
        yield Finding(
            "leftovers", "warn", f"engines without a supervisor: {', '.join(lost)}", f"enginectl kill {lost[0]}"
        )
    if stale:
        found = f"supervisors that vanished without a word: {', '.join(stale)}"
        yield Finding("leftovers", "warn", found, f"enginectl start {stale[0]}, or look: enginectl status {stale[0]}")
    try:
        partial = [path for path in models_root().iterdir() if path.name.startswith(".")]
    except OSError:
        partial = []
    if partial:
        size = sum(file.stat().st_size for path in partial for file in path.rglob("*") if file.is_file())
        if size:
            found = f"{text.size(size)} in unfinished downloads and conversions ({cache_root()})"
            yield Finding("leftovers", "warn", found, f"rm -r {partial[0]}")
    if not (silent or lost or stale or partial):
        yield Finding("leftovers", "ok", f"none; {text.count(len(entries), 'engine')} known")


def config_files() -> Iterator[Finding]:
    from enginectl.config import environment_layer, file_layers

    try:
        layers = [environment_layer(os.environ), *file_layers("default", os.environ)]
    except CtlError as error:
        found = error.message + (f" ({error.cause})" if error.cause else "")
        yield Finding("config", "fail", found, "; or ".join(error.try_) or "enginectl config check")
    else:
        yield Finding("config", "ok", f"{len(layers) - 1} files, {sum(map(len, layers))} keys")


def all_findings(python: str = sys.executable) -> Iterator[Finding]:
    """Every check, one after the other; a check that breaks says so and ends none of the others."""
    checks: list[Callable[[], Iterator[Finding]]] = [
        directories, lambda: interpreter(python), compiler, disk, memory, shared_memory, limits, threads, config_files,
        leftovers,
    ]  # fmt: skip
    for check in checks:
        try:
            yield from check()
        except (OSError, ValueError) as error:
            yield Finding(getattr(check, "__name__", "check"), "warn", f"cannot be looked at: {error}")
