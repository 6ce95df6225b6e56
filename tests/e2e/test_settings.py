"""What a start takes over from the one before: it is said, it can be taken back, and it conflicts with nothing."""

from __future__ import annotations

import glob

import pytest

from enginectl.asking import has_nvidia_card
from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


def test_what_is_repeated_is_said_with_how_to_be_rid_of_it(ctl: Ctl) -> None:
    first = ctl.start("t", "--set", "max_num_seqs=4", executor="null").err
    ctl.ok("stop", "t")
    assert "as the last time" not in first
    again = ctl.ok("start", "t").err
    (line,) = [line for line in again.splitlines() if "as the last time: " in line]
    assert "max_num_seqs=4, num_gpu_blocks=512" in line and "--set K=" in line and "--model M" in line
    assert again.index("as the last time") < again.index("starting")
    assert "as the last time" not in ctl.ok("start", "t").err  # that one only attached
    ctl.ok("stop", "t")
    ended = ctl.ok("start", "t", "--set", "max_num_seqs=", "--set", "num_gpu_blocks=-")
    assert "as the last time: executor=null " in ended.err
    assert "limits         64 seqs" in ended.out
    shown = {item["key"]: item for item in ctl.ok("config", "show", "t", "-o", "json").document["items"]}
    assert (shown["max_num_seqs"]["value"], shown["max_num_seqs"]["origin"]) == (64, "default")
    assert shown["num_gpu_blocks"]["value"] is None and shown["executor"]["origin"] == "recorded"


def test_what_is_taken_back_is_what_a_file_says_and_must_be_a_setting(ctl: Ctl) -> None:
    ctl.start("t", "--set", "max_num_seqs=4", executor="null")
    (ctl.base / "enginectl.toml").write_text("[settings]\nmax_num_seqs = 5\n")
    changed = ctl.ok("config", "show", "t", "--set", "max_num_seqs=", "-o", "json").document["items"]
    assert [item["value"] for item in changed if item["key"] == "max_num_seqs"] == [5]
    conflict = ctl("start", "t", "--set", "max_num_seqs=")
    assert (conflict.code, "max_num_seqs: running 4, asked 5" in conflict.err) == (7, True)
    wrong = ctl("start", "t", "--set", "max_num_seq=")
    assert (wrong.code, "did you mean max_num_seqs" in wrong.err) == (2, True)


@pytest.mark.parametrize("form", ["background", "foreground"])
def test_a_setting_of_a_project_is_no_conflict_with_a_plain_start_elsewhere(ctl: Ctl, form: str) -> None:
    file = ctl.base / "enginectl.toml"
    file.write_text("[settings]\nmax_num_seqs = 5\n")
    words = ("t", "--model", str(ctl.make_model()), "--set", "executor=null", "--set", "num_gpu_blocks=64")
    if form == "background":
        ctl.ok("start", *words)
    else:
        ctl.popen("start", "--foreground", *words)
        wait_until(lambda: ctl("status", "t", "-p", "state").out == "idle\n", 40.0, "ready")
    file.unlink()
    same = ctl.ok("start", "t")
    assert "same settings" in same.out and "limits         5 seqs" in same.out
    file.write_text("[settings]\nmax_num_seqs = 6\n")
    other = ctl("start", "t")
    assert (other.code, "max_num_seqs: running 5, asked 6" in other.err) == (7, True)


@pytest.mark.skipif(bool(glob.glob("/dev/nvidia[0-9]*")) or has_nvidia_card(), reason="there are GPUs")
def test_gpus_that_nobody_can_see_are_refused_and_not_recorded(ctl: Ctl) -> None:
    words = ("t", "--model", str(ctl.make_model()), "--set", "executor=null", "--set", "num_gpu_blocks=64")
    refused = ctl("start", *words, "--gpus", "0", "-o", "json")
    assert (refused.code, refused.document["id"]) == (2, "E1001")
    assert "there is no GPU 0 here" in refused.document["message"]
    assert ctl("status", "t").code == 4
    ctl.ok("start", *words, "--gpus", "-")
    assert "as the last time" not in ctl.ok("start", "t").err
