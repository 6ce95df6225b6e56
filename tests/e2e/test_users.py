"""Root in the directories of a user, and a user in root's: nobody is told that no engine runs where he may not look,
nobody is told to take what is another's, and nobody leaves something there."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.support.ctl import Ctl
from tests.support.other_user import UID, as_other, place
from tests.support.tiny_model import make_tiny_model

__all__ = ["place"]
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(os.geteuid() != 0, reason="two users, and one of them is root")]
LOOKING = (
    ["ps"], ["ps", "--running"], ["status"], ["status", "t"], ["probe"], ["probe", "t", "--readiness"], ["logs"],
    ["requests"], ["events"], ["top", "--once"], ["wait", "t", "--for", "idle"], ["stop"], ["stop", "t"],
    ["stop", "--all"], ["kill", "--yes"], ["drain"], ["config", "show"], ["start"],
)  # fmt: skip


def check_refused(code: int, document: dict[str, object], of: str) -> None:
    assert (code, document["id"], document["exit"]) == (2, "E1501", 2), document
    assert of in str(document["message"])
    assert "sudo -u " in str(document["try"]) and "chown" not in str(document["try"])


def test_root_in_the_places_of_a_user_is_told_whose_they_are(tmp_path: Path) -> None:
    theirs = tmp_path / "enginectl"
    (theirs / "engines" / "t").mkdir(parents=True, mode=0o700)
    for path in (tmp_path, theirs, theirs / "engines", theirs / "engines" / "t"):
        path.chmod(0o700)
        os.chown(path, UID, UID)
    ctl = Ctl(tmp_path)
    try:
        del ctl.env["ENGINECTL_STATE_DIR"], ctl.env["ENGINECTL_RUNTIME_DIR"]
        ctl.env |= {"XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
        for words in LOOKING:
            result = ctl(*words, "-o", "json")
            check_refused(result.code, result.document, f"{theirs}: it belongs to nobody known (uid {UID})")
            assert f"sudo -u '#{UID}' env ENGINECTL_STATE_DIR={theirs} enginectl" in str(result.document["try"])
        assert ctl.ok("version").err.count("E1501") == 1
        assert "✔ runtime directory" in (said := ctl("doctor").out)
        assert f"XDG_RUNTIME_DIR {tmp_path} belongs to nobody known (uid {UID})" in said
    finally:
        ctl.close()


def test_root_makes_nothing_in_the_state_home_of_a_user(tmp_path: Path) -> None:
    ctl = Ctl(tmp_path)
    theirs = tmp_path / "state-home"
    theirs.mkdir()
    os.chown(theirs, UID, UID)
    del ctl.env["ENGINECTL_STATE_DIR"]
    ctl.env |= {"XDG_STATE_HOME": str(theirs), "XDG_CACHE_HOME": str(theirs)}
    try:
        refused = ctl("start", "t", "--model", str(ctl.make_model()), "--set", "executor=null", "-o", "json")
        check_refused(refused.code, refused.document, f"{theirs} belongs to nobody known (uid {UID}), you are root")
        doctor = ctl("doctor")
        assert (doctor.code, "✖ state directory" in doctor.out) == (10, True)
        assert ctl("ps").code == 0
        assert list(theirs.iterdir()) == []
    finally:
        ctl.close()


def test_a_user_in_the_places_of_root_is_told_whose_they_are(place: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "enginectl" / "engines").mkdir(parents=True)
    closed.chmod(0o700)
    for words in LOOKING:
        result = as_other(*words, "-o", "json", ENGINECTL_STATE_DIR=str(closed / "enginectl"), HOME=str(place))
        check_refused(result.code, result.document, "belongs to root (uid 0) and is closed to you")


def test_what_root_left_in_the_place_of_a_user_is_said_to_that_user(place: Path) -> None:
    """As an older version made it."""
    (place / "enginectl").mkdir(mode=0o700)
    for words in LOOKING:
        result = as_other(*words, "-o", "json", XDG_STATE_HOME=str(place))
        assert (result.code, result.document["id"]) == (2, "E1501")
        ask, take, _ = result.document["try"]
        assert ask == f"sudo -u root env ENGINECTL_STATE_DIR={place}/enginectl enginectl ..."
        assert take == f"when nothing of theirs runs there: sudo chown -R {UID} {place}/enginectl"
    assert stat.S_IMODE((place / "enginectl").stat().st_mode) == 0o700


def test_a_user_without_a_name_and_a_home_starts_an_engine(place: Path) -> None:
    """In /tmp: the engine looks for compiled code there too, and needs no home for it."""
    home = Path(f"/tmp/enginectl-{UID}")
    if home.exists() and home.stat().st_uid == UID:
        shutil.rmtree(home)  # of a run that was killed
    assert not home.exists()
    model = make_tiny_model(place / "tiny")
    for file in model.iterdir():
        file.chmod(0o644)
    words = ("start", "t", "--model", str(model), "--set", "num_gpu_blocks=64", "--timeout", "80s")
    try:
        started = as_other(*words, PATH=str(place), OMP_NUM_THREADS="1")  # no compiler there
        assert started.code == 0, started.err
        (pid,) = as_other("status", "t", "-p", "process.pid").out.split()
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert f"ENGINECTL_CACHE_DIR={home}/cache".encode() in environ
        assert not [entry for entry in environ if entry.startswith(b"HOME=")]
        assert as_other("stop", "t", "--yes").code == 0
    finally:
        as_other("kill", "t", "--yes")
        shutil.rmtree(home, ignore_errors=True)
