"""A command that was replaced in place meets an engine whose supervisor is of the version before."""

from __future__ import annotations

import json

import pytest

from tests.support.ctl import Ctl

pytestmark = pytest.mark.e2e


def test_looking_draining_and_stopping_still_work(ctl: Ctl) -> None:
    child = ctl.old_supervisor("old")
    assert ctl.ok("status", "old", "-p", "state").out == "idle\n"
    assert ctl.ok("ps", "-o", "json").document["items"][0]["supervisor_version"] == "0.0.9"
    assert ctl.ok("probe", "old", "--readiness").out.startswith("ok step=7")
    assert ctl.ok("version", "-o", "json").document["engines"]["old"] == "0.0.9"
    assert "enginectl drain old && enginectl start old" in ctl.ok("version").out
    assert "did you mean" not in ctl("start", "old").err  # its settings are not known here
    assert "not on this host: its model is not recorded" in ctl("generate", "-e", "old", "x").err
    assert ctl.ok("drain", "old", "-o", "json").document["drained"] is True
    assert child.wait(10) == 0
    child = ctl.old_supervisor("old")
    ctl.ok("stop", "old")
    assert child.wait(10) == 0
    assert ctl("status", "old", "--exit-status").code == 3


@pytest.mark.parametrize(
    "words",
    [["explain", "-e", "old", "x"], ["pause", "old"], ["metrics", "old"], ["events", "old"], ["requests", "old"],
     ["sleep", "old", "--yes"], ["cordon", "old"]],
)  # fmt: skip
def test_a_verb_it_lacks_says_so_and_what_to_do(ctl: Ctl, words: list[str]) -> None:
    ctl.old_supervisor("old")
    result = ctl(*words, "-o", "json")
    assert result.code == 7
    document = json.loads(result.out)
    assert document["id"] == "E1202"
    assert f"was started by an older version and has no {words[0]!r}" in document["message"]
    assert "version 0.0.9" in document["cause"]
    assert document["try"][0] == "enginectl drain old && enginectl start old"
    assert "older version" in ctl.ok("help", "E1202").out or "old supervisor" in ctl.ok("help", "E1202").out


def test_a_dump_of_it_takes_its_files(ctl: Ctl) -> None:
    ctl.old_supervisor("old")
    document = ctl.ok("dump", "old", "-o", "json").document
    assert "engine.json" in document["files"]
    assert "older version" in document["missing"][0]
