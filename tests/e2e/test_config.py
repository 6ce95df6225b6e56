"""config and doctor: what a start would use, and whether this machine can start one."""

from __future__ import annotations

import pytest

from tests.support.ctl import Ctl

pytestmark = pytest.mark.e2e


def origins(ctl: Ctl, *args: str, **environ: str) -> dict[str, tuple[object, str]]:
    items = ctl.ok("config", "show", *args, "-o", "json", **environ).document["items"]
    return {item["key"]: (item["value"], item["origin"]) for item in items}


def test_each_value_says_where_it_comes_from(ctl: Ctl) -> None:
    file = ctl.base / "enginectl.toml"
    file.write_text("[settings]\nmax_num_seqs = 4\nblock_size = 8\n[engines.default]\nblock_size = 32\n")
    found = origins(ctl, "--set", "seed=7", ENGINECTL_MAX_NUM_SEQS="5")
    assert found["seed"] == (7, "flag")
    assert found["max_num_seqs"] == (5, "ENGINECTL_MAX_NUM_SEQS")
    assert found["block_size"] == (32, f"{file} [engines.default]")
    assert found["dtype"] == ("auto", "default")
    assert found["restart"] == ("no", "default")
    shown = ctl.ok("config", "show", "--origin", "--changed").out
    assert ["block_size", "32", str(file), "[engines.default]"] in [line.split() for line in shown.splitlines()]
    assert "dtype" not in shown


def test_what_an_engine_was_started_with_is_recorded(ctl: Ctl) -> None:
    ctl.start("t")
    found = origins(ctl, "t")
    assert found["num_gpu_blocks"] == (512, "recorded")
    ctl.ok("stop", "t", "--yes")


def test_check_names_each_file_that_cannot_be_used(ctl: Ctl) -> None:
    assert ctl.ok("config", "check").out == "environment  ok   0 keys\n"
    good, bad = ctl.base / "enginectl.toml", ctl.base / "bad.toml"
    good.write_text("[settings]\nseed = 1\n[engines.a]\nseed = 2\n")
    bad.write_text("[settings]\nsead = 1\n")
    assert f"{good}  ok   2 keys\n" in ctl.ok("config", "check").out
    result = ctl("config", "check", str(good), str(bad))
    assert result.code == 2
    assert "did you mean 'seed'" in result.err
    document = ctl("config", "check", str(bad), "-o", "json").document
    assert [item["ok"] for item in document["items"]] == [False, True]


def test_a_variable_that_means_nothing_is_told(ctl: Ctl) -> None:
    words = ["--model", str(ctl.make_model()), "--dry-run"]
    for line in (["config", "check"], ["config", "show"], ["start", "t", *words], ["doctor"]):
        result = ctl(*line, ENGINECTL_MAX_MODELLEN="3")
        assert result.code == (10 if line == ["doctor"] else 2)
        assert "did you mean ENGINECTL_MAX_MODEL_LEN" in result.out + result.err
    ctl.ok("start", "t", *words, ENGINECTL_OF_SOMEBODY_ELSE="3")


def test_an_unknown_key_of_the_project_file_stops_a_start_with_the_right_one(ctl: Ctl) -> None:
    (ctl.base / "enginectl.toml").write_text("[settings]\nmax_modellen = 3\n")
    result = ctl("start", "t", "--model", str(ctl.make_model()), "--dry-run", "-o", "json")
    assert result.code == 2
    assert "unknown key 'max_modellen'; did you mean 'max_model_len'" in result.document["message"]
    assert ctl("ps").code == 0  # looking needs no settings


def test_doctor_finds_this_machine_able_and_says_so_in_both_forms(ctl: Ctl) -> None:
    result = ctl.ok("doctor")
    assert "packages" in result.out
    assert "failed" in result.err
    document = ctl.ok("doctor", "-o", "json").document
    assert document["ok"] is True
    assert {item["level"] for item in document["items"]} <= {"ok", "warn"}


def test_doctor_names_what_is_wrong_and_the_remedy(ctl: Ctl) -> None:
    state = ctl.base / "state"
    state.mkdir()
    state.chmod(0o777)
    result = ctl("doctor")
    assert result.code == 10
    assert f"fix: chmod 700 {state}" in result.out
    failed = [item["check"] for item in ctl("doctor", "-o", "json").document["items"] if item["level"] == "fail"]
    assert failed[0] == "state directory"
