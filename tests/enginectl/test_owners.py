"""Root in the places of another user: its own are used, and said."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from enginectl import owners


@pytest.fixture
def anna(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home, a cache and a config of uid 12345, in the environment of root, whose own home is /."""
    users = {
        0: SimpleNamespace(pw_dir="/", pw_name="root"),
        12345: SimpleNamespace(pw_dir=str(tmp_path), pw_name="anna"),
        23456: SimpleNamespace(pw_dir="/home/bert", pw_name="EXAMPLE\\bert"),
    }
    monkeypatch.setattr(pwd, "getpwuid", users.__getitem__)
    monkeypatch.setattr(owners, "owner_of", lambda path: 12345 if path == str(tmp_path) else os.stat(path).st_uid)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_root_uses_its_own_home_and_cache_where_those_are_another_users(anna: Path) -> None:
    home, cache, config = owners.use_own_places()
    assert f"HOME is {anna}, which is not root's; / is used" in home and "sudo -u anna enginectl" in home
    assert "XDG_CACHE_HOME" in cache
    assert "XDG_CONFIG_HOME" in config
    assert os.environ["HOME"] == "/" and not {"XDG_CACHE_HOME", "XDG_CONFIG_HOME"} & os.environ.keys()
    assert owners.use_own_places() == []


def test_nobody_else_is_root(anna: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert owners.use_own_places() == []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert owners.use_own_places() == []


def test_a_user_without_a_name_is_named_by_its_number(anna: Path) -> None:
    assert (owners.sudo(12345), owners.sudo(7)) == ("sudo -u anna", "sudo -u '#7'")
    assert owners.sudo(23456) == r"sudo -u 'EXAMPLE\bert'"
    assert owners.owner_name(7) == "nobody known" and owners.home_of(7) is None
