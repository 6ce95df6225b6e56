"""Finding engines by files and processes: what is refused, what is believed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from enginectl import dirs
from enginectl.control import ExitInfo
from enginectl.dirs import SOCKET_PATH_BYTES, check_name, make_private, make_root, runtime_root, state_root
from enginectl.errors import BadRuntimeDir, Conflict, NoSuchEngine, UsageError
from enginectl.identity import ProcessId, boot_id, identify, is_alive, send_signal
from enginectl.record import EngineLock, Record, write_json
from enginectl.rundir import (
    EngineEntry,
    list_engines,
    load_settings,
    make_runtime_dir,
    make_state_dir,
    remove_runtime_dir,
    runtime_dir_of,
    save_settings,
    sweep_sockets,
)
from enginectl.settings import EngineSettings, differences


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENGINECTL_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("ENGINECTL_RUNTIME_DIR", str(tmp_path / "r"))
    return tmp_path


def settings(name: str = "t", **options: object) -> EngineSettings:
    return EngineSettings(name=name, config={"model": "/m"}, **options)  # type: ignore[arg-type]


# ---------------------------------------------------------------- names and directories


@pytest.mark.parametrize("name", ["", ".x", "-x", "a/b", "../x", "a" * 81, "a b", "a\n", "é"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not an engine name"):
        check_name(name)


def test_settings_win_over_xdg_over_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert state_root() == tmp_path / "s"
    monkeypatch.delenv("ENGINECTL_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    assert state_root() == tmp_path / "xdg" / "enginectl"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_root() == tmp_path / ".local" / "state" / "enginectl"


def test_without_a_home_the_state_is_in_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENGINECTL_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setattr(dirs.pwd, "getpwuid", lambda uid: (_ for _ in ()).throw(KeyError(uid)))
    assert state_root() == Path(f"/tmp/enginectl-{os.geteuid()}/state")


def test_a_runtime_dir_of_nobody_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ENGINECTL_RUNTIME_DIR")
    fallback = Path(f"/tmp/enginectl-{os.geteuid()}")
    (tmp_path / "file").write_text("")
    for value in (str(tmp_path / "missing"), str(tmp_path / "file")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        assert runtime_root() == fallback
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime_root() == tmp_path / "enginectl"


def test_directories_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        path = make_private(make_root(tmp_path / "root", "X") / "e", "X")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o700
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_link_a_file_and_an_open_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for name, text in (("link", "symbolic link"), ("file", "not a directory"), ("open", "others may")):
        with pytest.raises(BadRuntimeDir, match=text):
            make_private(tmp_path / name, "X")


def test_a_foreign_owner_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask as the owner helps where its engines are kept; whoever took another place of ours is not to be."""
    (tmp_path / "d").mkdir(mode=0o700)
    monkeypatch.setattr(dirs.os, "geteuid", lambda: os.getuid() + 12345)
    for setting, tries in (("ENGINECTL_STATE_DIR", 2), ("X", 1)):
        with pytest.raises(BadRuntimeDir, match="it belongs to") as caught:
            make_private(tmp_path / "d", setting)
        assert len(caught.value.try_) == tries and f"set {setting} to" in caught.value.try_[-1]
        assert caught.value.try_[0].startswith("sudo -u ") == (tries == 2)


def test_long_names_get_short_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "n" * 80
    path = runtime_dir_of(name) / "control.sock"
    assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES
    monkeypatch.setenv("ENGINECTL_RUNTIME_DIR", "/tmp/" + "d" * 110)
    with pytest.raises(BadRuntimeDir) as caught:
        runtime_dir_of("t")
    assert "107" in caught.value.cause and "ENGINECTL_RUNTIME_DIR" in caught.value.try_[0]


def test_the_same_name_in_two_state_directories_does_not_share_sockets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = make_runtime_dir(runtime_dir_of("t"), make_state_dir("t").state)
    assert runtime_dir_of("t") == first
    monkeypatch.setenv("ENGINECTL_STATE_DIR", str(tmp_path / "other"))
    assert runtime_dir_of("t") != first


def test_only_our_sockets_are_swept(tmp_path: Path) -> None:
    base = make_runtime_dir(runtime_dir_of("t"), make_state_dir("t").state)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(base / "control.sock"))
    (base / "notes.txt").write_text("mine")
    assert sweep_sockets(base) == 1
    assert sorted(os.listdir(base)) == ["notes.txt", "owner"]
    remove_runtime_dir(base)
    assert os.listdir(base) == ["notes.txt"]


# ---------------------------------------------------------------- settings


def test_settings_come_back_as_they_were_saved() -> None:
    save_settings(settings(restart="on-failure:3", gpus=[1]))
    assert load_settings("t") == settings(restart="on-failure:3", gpus=[1])


@pytest.mark.parametrize("options", [{"restart": "sometimes"}, {"start_timeout_s": 0}, {"term_s": -1.0}])
def test_settings_that_cannot_be_used_are_not_saved(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        save_settings(settings(**options))
    assert load_settings("t") is None


def test_differences_name_what_differs() -> None:
    other = EngineSettings(name="t", config={"model": "/m", "max_num_seqs": 2}, restart="always", model_label="x")
    assert differences(settings(), other) == ["config.max_num_seqs", "restart"]


# ---------------------------------------------------------------- identity


def test_a_pid_that_was_reused_is_somebody_else() -> None:
    me = identify(os.getpid())
    assert me is not None and is_alive(me)
    assert not is_alive(ProcessId(pid=me.pid, start_time=me.start_time - 1, boot_id=me.boot_id))
    assert not is_alive(ProcessId(pid=me.pid, start_time=me.start_time, boot_id="another boot"))


@pytest.mark.parametrize("pid", [0, 1, -1, 2**31, 10**10])
def test_a_recorded_pid_that_is_not_ours_is_never_signalled(pid: int) -> None:
    who = ProcessId(pid=pid, start_time=1, boot_id=boot_id())
    assert not is_alive(who) or pid == 1
    import signal

    assert send_signal(ProcessId(pid=pid, start_time=-5, boot_id=boot_id()), signal.SIGKILL) is False


# ---------------------------------------------------------------- lock, record, liveness


def test_a_held_lock_refuses_with_the_holders_pid() -> None:
    path = make_state_dir("t").lock
    first, second = EngineLock(path), EngineLock(path)
    first.take()
    with pytest.raises(Conflict, match=str(os.getpid())):
        second.take()
    first.release()
    second.take()
    second.release()


def test_unknown_names_are_answered_with_the_known() -> None:
    save_settings(settings("alpha"))
    with pytest.raises(NoSuchEngine) as caught:
        EngineEntry.find("beta")
    assert "alpha" in caught.value.cause
    assert EngineEntry.find("alpha").view().reason == "never started"


def test_a_dead_record_is_a_post_mortem() -> None:
    paths = make_state_dir("t")
    ended = ExitInfo(code=None, signal="9 KILL", cause="somebody", phase="load weights")
    write_json(paths.record, Record(name="t", state="failed", ended=True, last_exit=ended, model="m"))
    entry = EngineEntry.find("t")
    assert entry.liveness == "dead"
    assert entry.view().last_exit == ended and entry.view().state == "failed"


def test_a_record_of_a_reused_pid_is_stale_and_of_a_living_engine_is_lost() -> None:
    paths = make_state_dir("t")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        who = identify(other.pid)
        assert who is not None
        reused = ProcessId(pid=who.pid, start_time=who.start_time + 7, boot_id=who.boot_id)
        write_json(paths.record, Record(name="t", supervisor=reused, state="idle"))
        assert EngineEntry.read("t").liveness == "stale"
        write_json(paths.record, Record(name="t", supervisor=reused, engine=who, state="idle"))
        assert EngineEntry.read("t").view().state == "lost"
        write_json(paths.record, Record(name="t", supervisor=who, state="idle"))
        assert EngineEntry.read("t").liveness == "running"
        other.communicate(b"\n", timeout=10)


@pytest.mark.parametrize("data", [b"", b"1", b"-1", b"text", b'{"name": 5}', b"\xff\xfe", b"[" * 100_000])
def test_a_garbage_record_is_stale_and_harms_nobody(data: bytes) -> None:
    paths = make_state_dir("t")
    paths.record.write_bytes(data)
    entry = EngineEntry.read("t")
    assert entry.record is None and entry.liveness == "stale"
    assert [found.name for found in list_engines()] == ["t"]
    msgspec.json.encode(entry.view())


def test_one_engine_that_cannot_be_trusted_hides_no_other() -> None:
    """A name that is none, and a directory that others may write."""
    for name in ("good", "open"):
        make_state_dir(name)
        save_settings(settings(name))
    (state_root() / "engines" / "we ird").mkdir()
    (state_root() / "engines" / "open").chmod(0o777)
    assert [entry.name for entry in list_engines()] == ["good"]
