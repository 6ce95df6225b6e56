"""A state directory with engines in every condition, as supervisors leave it, and the scripts as files."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from enginectl.completion import FILE_NAMES, render
from tests.support.shells import Fish, Shell, open_shell

NASTY = "it's $HOME `id` & x"
IDS = ("cmpl-1", "cmpl:2=x", "chatcmpl-91c", NASTY)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """HOME and working directory. `dead` does not run; `tiny.v2` and `qwen` do, as far as their files say; `foreign` is
    of another state directory, which is gone."""
    home = tmp_path_factory.mktemp("user") / "home"
    home.mkdir()
    runtime = Path(tempfile.mkdtemp(prefix="hints-"))  # short: the path of a socket has 107 bytes
    (home / "a file.gguf").touch()
    sockets = []
    for name in ("qwen", "tiny.v2", "dead"):
        state = home / "state" / "engines" / name
        state.mkdir(parents=True)
        (state / "settings.json").write_text("{}")
        if name != "dead":
            sockets.append(_run(runtime / name, state))
    sockets.append(_run(runtime / "foreign", home / "other" / "engines" / "foreign"))
    (runtime / "foreign" / "requests").write_text("not-ours\n")
    (runtime / "broken").mkdir()
    (runtime / "qwen" / "utilities").write_text("describe\npause_scheduler\n")
    (runtime / "tiny.v2" / "utilities").write_text("ping\n")
    (runtime / "qwen" / "requests").write_text("".join(f"{one}\n" for one in (*IDS, "evil\x1b[2J")))
    (home / "runtime").symlink_to(runtime)
    (home.parent / "link").symlink_to(home)
    yield home
    for one in sockets:
        one.close()
    shutil.rmtree(runtime)


def _run(directory: Path, state: Path) -> socket.socket:
    directory.mkdir()
    (directory / "owner").write_text(f"{state}\n")
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(directory / "control.sock"))
    return bound


@pytest.fixture(scope="module", params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, folder: Path) -> Iterator[Shell | Fish]:
    scripts = {name: folder / "scripts" / name / file for name, file in FILE_NAMES.items()}
    path = scripts[request.param]
    path.parent.mkdir(parents=True)
    path.write_text(render(request.param))
    environ = {
        "PATH": _path_without_python(folder),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "ENGINECTL_STATE_DIR": f"{folder.parent / 'link'}/state/",  # as a person may write it
        "ENGINECTL_RUNTIME_DIR": str((folder / "runtime").resolve()),
        "ENGINECTL_CACHE_DIR": str(folder / "cache"),
    }
    opened = open_shell(request.param, folder, environ, scripts)
    yield opened
    opened.close()


def _path_without_python(folder: Path) -> str:
    """Every command of this PATH, but each python and enginectl is one that leaves a trace and fails."""
    traps = folder / "traps"
    traps.mkdir(exist_ok=True)
    for name in ("python", "python3", "enginectl"):
        trap = traps / name
        trap.write_text(f"#!/bin/sh\ntouch {folder}/python-was-started\nexit 1\n")
        trap.chmod(0o755)
    return f"{traps}:{os.environ['PATH']}"
