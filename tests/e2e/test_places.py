"""Where things are kept, however the environment says it: one place, and one that we can use."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ctl import Ctl

pytestmark = pytest.mark.e2e


def test_a_umask_that_takes_our_own_rights_away(ctl: Ctl) -> None:
    model = ctl.make_model()
    words = f"start t --model {model} --set executor=null --set num_gpu_blocks=64"
    command = ["sh", "-c", f'umask 777 && exec "$0" -m enginectl {words}', sys.executable]
    done = subprocess.run(command, env=ctl.env, cwd=ctl.base, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modes = {path: stat.S_IMODE(os.lstat(path).st_mode) for path in (ctl.base / "state").rglob("*")}
    assert len(modes) > 5
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    ctl.ok("stop", "t")


@pytest.mark.parametrize(
    "names", [("ENGINECTL_STATE_DIR", "ENGINECTL_RUNTIME_DIR"), ("XDG_STATE_HOME", "XDG_RUNTIME_DIR")]
)
def test_relative_places_are_those_of_the_command(tmp_path: Path, names: tuple[str, str]) -> None:
    ctl = Ctl(tmp_path)
    for name in ("ENGINECTL_STATE_DIR", "ENGINECTL_RUNTIME_DIR"):
        del ctl.env[name]
    (tmp_path / "run").mkdir(mode=0o700)
    ctl.env |= {names[0]: "state", names[1]: os.path.relpath(ctl.runtime, tmp_path)}
    try:
        ctl.start("t", executor="null")
        (record,) = (tmp_path / "state").rglob("record.json")
        assert ctl.ok("status", "t", "-p", "state").out == "idle\n"
        base = ctl.ok("status", "t", "-p", "log").out.strip()
        assert base == str(record.parent / "engine.log")
        ctl.ok("stop", "t")
    finally:
        ctl.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can stand in somebody else's home")
def test_root_puts_nothing_into_the_home_of_another(tmp_path: Path) -> None:
    home = tmp_path / "anna"
    home.mkdir()
    os.chown(home, 12345, 12345)
    ctl = Ctl(tmp_path)
    ctl.env |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    try:
        for words in (["ps"], ["doctor"], ["config", "show"], ["model", "ls"], ["unit"], ["probe"]):
            result = ctl(*words, "-o", "json")
            assert f"HOME is {home}, which is not root's; " in result.err
            assert result.document["schema"]
        assert ctl("-o", "json", "status", "nobody").document["exit"] == 4
        assert list(home.iterdir()) == []
        for setting in ("ENGINECTL_STATE_DIR", "ENGINECTL_RUNTIME_DIR"):
            theirs = ctl.runtime / setting.lower()[10:]  # short: the path of a socket has 107 bytes
            theirs.mkdir(mode=0o700)
            os.chown(theirs, 12345, 12345)
            refused = ctl("start", "t", "--model", str(ctl.make_model()), **{setting: str(theirs)})
            assert (refused.code, f"refusing {theirs}: it belongs to" in refused.err) == (2, True), refused.err
            assert "sudo -u '#12345'" in refused.err and "chown" not in refused.err
            assert list(theirs.iterdir()) == []
    finally:
        ctl.close()
