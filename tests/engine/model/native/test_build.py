"""Where the library comes from: built once, whole, this user's, or not at all and with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from engine.model import store
from engine.model.native import build
from engine.model.native.bindings import Library
from engine.model.native.build import Build, BuildError, Level, find_library, is_whole, levels, library_file
from tests.support.wait import wait_until

pytestmark = pytest.mark.thread

LEVEL = Level(("-O0",), frozenset())
"""Compiles fast."""
REPOSITORY = Path(__file__).resolve().parents[4]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(build.DIRECTORY_SETTING, str(tmp_path / "native"))
    return tmp_path / "native"


@pytest.fixture
def compiler() -> str:
    try:
        return build.find_compiler()
    except BuildError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a build puts there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(build.DIRECTORY_SETTING, str(tmp_path_factory.mktemp("built") / "native"))
        try:
            return Build(LEVEL).run().read_bytes()
        except BuildError as error:
            pytest.skip(str(error))


def put(content: bytes) -> Path:
    file = library_file(LEVEL)
    file.parent.mkdir(mode=0o700)
    file.write_bytes(content)
    file.chmod(0o600)
    return file


def fake_compiler(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    (folder / "cc").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "cc").chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_a_build_is_found_again_and_loads(folder: Path, compiler: str) -> None:
    assert find_library(LEVEL) is None
    file = Build(LEVEL).run()
    assert find_library(LEVEL) == file
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in folder.iterdir()] == [file.name]
    assert Library(file).width() in (4, 8, 16)


def test_without_a_compiler_the_text_says_so(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="no C compiler on PATH"):
        Build(LEVEL).run()
    assert not folder.exists()


def test_a_library_that_was_built_needs_no_compiler(
    folder: Path, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(content)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_library(LEVEL) == file


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_compiler(tmp_path / "bin", "echo note: one >&2; echo 'x.c:1: error: no such thing' >&2; exit 4", monkeypatch)
    with pytest.raises(BuildError, match=r"status 4: x\.c:1: error: no such thing"):
        Build(LEVEL).run()
    assert list(folder.iterdir()) == []


def test_a_compiler_that_hangs_is_ended(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_compiler(tmp_path / "bin", "exec sleep 100", monkeypatch)
    monkeypatch.setattr(build, "_BUILD_LIMIT_S", 0.2)
    with pytest.raises(BuildError, match="took longer"):
        Build(LEVEL).run()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("script", ["exec sleep 100", "sleep 100; true"], ids=["itself", "its-child"])
def test_a_build_can_be_cancelled(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    begun = tmp_path / "begun"
    fake_compiler(tmp_path / "bin", f"touch {begun}; {script}", monkeypatch)
    errors: list[BuildError] = []
    work = Build(LEVEL)

    def run() -> None:
        try:
            work.run()
        except BuildError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(begun.exists, 20.0, "the compiler")
    work.cancel()
    thread.join(20)
    assert len(errors) == 1
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    monkeypatch.setenv(build.DIRECTORY_SETTING, str(closed / "native"))
    with pytest.raises(BuildError, match="cannot be written"):
        Build(LEVEL).run()


@pytest.mark.parametrize("place", ["/proc/nowhere/native", "/dev/null/native"])
def test_a_place_that_can_hold_no_directory_is_named(
    place: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(build.DIRECTORY_SETTING, place)
    with pytest.raises(BuildError, match=f"{place} cannot be written"):
        Build(LEVEL).run()


def test_a_directory_that_others_may_write_is_never_used(folder: Path, content: bytes, compiler: str) -> None:
    put(content)
    folder.chmod(0o777)
    with pytest.raises(BuildError, match="this user alone"):
        find_library(LEVEL)
    with pytest.raises(BuildError, match="this user alone"):
        Build(LEVEL).run()


def test_a_directory_that_is_a_link_is_never_used(folder: Path, tmp_path: Path, compiler: str) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "real")
    with pytest.raises(BuildError, match="this user alone"):
        Build(LEVEL).run()


@pytest.mark.parametrize("weak", [".", "cache"])
@pytest.mark.parametrize("fault", ["writable", "link", "another's"])
def test_in_tmp_what_it_stands_in_must_be_this_users_too(
    tmp_path: Path, content: bytes, weak: str, fault: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns it could put another directory there between the look and the use."""
    monkeypatch.setattr(store, "SHARED", tmp_path)
    root = tmp_path / f"enginectl-{os.geteuid()}"
    monkeypatch.setenv(build.DIRECTORY_SETTING, str(root / "cache" / "native"))
    (root / "cache").mkdir(parents=True, mode=0o755)
    root.chmod(0o755)
    file = put(content)
    assert find_library(LEVEL) == file
    match fault:
        case "writable":
            (root / weak).chmod(0o775)
        case "link":
            (root / weak).rename(tmp_path / "real")
            (root / weak).symlink_to(tmp_path / "real")
        case "another's":
            if os.geteuid():
                pytest.skip("only root gives away")
            os.chown(root / weak, 12345, -1)
    with pytest.raises(BuildError, match=f"{root / weak} must be a directory of this user alone"):
        find_library(LEVEL)
    with pytest.raises(BuildError, match=f"others may write to {root / weak}"):
        Build(LEVEL).run()


def test_in_tmp_a_build_closes_what_it_makes(tmp_path: Path, compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "SHARED", tmp_path)
    root = tmp_path / f"enginectl-{os.geteuid()}"
    monkeypatch.setenv(build.DIRECTORY_SETTING, str(root / "cache" / "native"))
    before = os.umask(0o002)
    try:
        file = Build(LEVEL).run()
    finally:
        os.umask(before)
    assert find_library(LEVEL) == file
    assert [path.stat().st_mode & 0o777 for path in (root, root / "cache", file.parent)] == [0o700] * 3


def test_a_directory_that_cannot_be_looked_at_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.DIRECTORY_SETTING, str(tmp_path / ("x" * 300)))
    with pytest.raises(BuildError, match="cannot be read"):
        find_library(LEVEL)


@pytest.mark.parametrize("damage", ["cut", "byte", "empty", "other", "link", "writable", "folder"])
def test_what_is_damaged_or_foreign_is_not_loaded_but_built_anew(folder: Path, content: bytes, damage: str) -> None:
    file = put(content)
    match damage:
        case "cut":
            file.write_bytes(content[:-1000])
        case "byte":
            file.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
        case "empty":
            file.write_bytes(b"")
        case "other":
            file.write_bytes(b"\x7fELF" * 1000)
        case "link":
            file.rename(folder / "elsewhere")
            file.symlink_to(folder / "elsewhere")
        case "writable":
            file.chmod(0o666)
        case "folder":
            file.unlink()
            file.mkdir()
    assert not is_whole(file)
    assert find_library(LEVEL) is None
    if damage != "folder":
        assert is_whole(Build(LEVEL).run())


def test_builds_in_parallel_all_succeed(folder: Path, compiler: str) -> None:
    code = (
        "from engine.model.native.build import Build, Level, is_whole\n"
        "assert is_whole(Build(Level(('-O0',), frozenset())).run())"
    )
    command = [sys.executable, "-c", code]
    children = [subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE) for _ in range(4)]
    results = [child.communicate(timeout=100)[1] for child in children]
    assert [child.returncode for child in children] == [0] * 4, results
    assert [entry.name for entry in folder.iterdir()] == [library_file(LEVEL).name]


def test_left_overs_of_killed_builds_go(folder: Path, compiler: str) -> None:
    folder.mkdir(mode=0o700)
    old, new = folder / ".building-old.so", folder / ".building-new.so"
    old.touch()
    new.touch()
    os.utime(old, (1, 1))
    Build(LEVEL).run()
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("times", [1, 1000])
def test_a_workplace_that_another_build_removed_is_made_again(
    folder: Path, compiler: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = tempfile.mkdtemp
    made: list[str] = []

    def make_and_lose(prefix: str, dir: Path) -> str:
        made.append(make(prefix=prefix, dir=dir))
        if len(made) <= times:
            shutil.rmtree(made[-1])
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    if times == 1:
        assert is_whole(Build(LEVEL).run())
    else:
        with pytest.raises(BuildError, match="other builds remove what this one makes"):
            Build(LEVEL).run()


def test_levels_end_with_one_that_every_cpu_runs() -> None:
    assert levels()[-1].flags == ()
    assert len({library_file(level) for level in levels()}) == len(levels())


def test_levels_follow_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = {"avx512_bf16", "avx512_vnni"}
    wide = frozenset({"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq"} | pairs)
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(build, "cpu_flags", lambda: wide)
    assert [len(level.flags) for level in levels()] == [9, 7, 3, 0]
    monkeypatch.setattr(build, "cpu_flags", lambda: wide | {"amx_tile", "amx_bf16"})
    assert [len(level.flags) for level in levels()] == [11, 9, 7, 3, 0]
    monkeypatch.setattr(build, "cpu_flags", lambda: wide - pairs)
    assert [len(level.flags) for level in levels()] == [7, 3, 0]
    monkeypatch.setattr(build, "cpu_flags", lambda: frozenset({"sse2"}))
    assert [len(level.flags) for level in levels()] == [0]


def test_cpu_flags_are_read(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\n")
    assert build.cpu_flags(file) == {"fpu", "avx2", "fma"}
    assert build.cpu_flags(tmp_path / "missing") == frozenset()
