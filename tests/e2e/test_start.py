from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.support.ctl import PACED, Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


def test_start_returns_when_ready_and_again_is_success(ctl: Ctl) -> None:
    first = ctl.start("t")
    assert first.out.startswith("t  ready in ")
    assert "512 blocks × 16 = 8,192 tokens" in first.out
    assert "✔ kv cache" in first.err
    again = ctl.ok("start", "t", "-o", "json").document
    assert again["changed"] is False
    assert again["state"] == "idle"
    assert [phase["name"] for phase in again["phases"]] == [
        "spawn", "handshake", "load weights", "kv cache", "warm-up"
    ]  # fmt: skip
    other = ctl("start", "t", "--set", "max_num_seqs=7", "-o", "json")
    assert other.code == 7
    assert "max_num_seqs: running default, asked 7" in other.document["cause"]


def test_a_known_name_starts_as_the_last_time(ctl: Ctl) -> None:
    ctl.start("t", "--set", "max_num_seqs=7")
    ctl.ok("stop", "t")
    document = ctl.ok("start", "t", "-o", "json").document
    assert (document["changed"], document["ready"]["max_num_seqs"]) == (True, 7)
    assert document["asked"]["executor"] == PACED


def test_unknown_names_paths_and_models_are_refused(ctl: Ctl) -> None:
    ctl.make_model()
    unknown = ctl("start", "qwen")
    assert (unknown.code, "--model" in unknown.err) == (4, True)
    path = ctl("start", str(ctl.model))
    assert path.code == 2
    assert f"enginectl start tiny --model {ctl.model}" in path.err
    assert ctl("start", "t", "--model", "no/such").code == 2
    (ctl.model / "tokenizer.json").unlink()
    broken = ctl("start", "t", "--model", str(ctl.model), "-o", "json")
    assert (broken.code, broken.document["id"]) == (2, "E1205")
    assert "tokenizer.json" in broken.document["message"]
    assert ctl.ok("ps", "-o", "json").document["items"] == []


def test_a_failed_start_says_phase_and_cause(ctl: Ctl) -> None:
    ctl.make_model()
    result = ctl(
        "start",
        "t",
        "--model",
        str(ctl.model),
        "--set",
        f"executor={PACED}",
        "-o",
        "json",
        PACED_FAIL_FILE=str(ctl.model / "config.json"),
    )
    assert result.code == 8
    assert "in phase 'load weights'" in result.document["message"]
    assert "weights are broken on purpose" in result.document["cause"]
    page = ctl.ok("status", "t").out
    assert "weights are broken on purpose" in page
    assert ctl("status", "t", "--exit-status").code == 9
    assert "broken on purpose" in ctl.ok("logs", "t", "--previous", "-n", "50").out


def test_dry_run_starts_nothing(ctl: Ctl) -> None:
    ctl.make_model()
    plan = ctl.ok(
        "start", "t", "--model", str(ctl.model), "--set", "kv_memory=1MiB", "--dry-run", "-o", "json"
    ).document
    assert plan["kind"] == "Plan"
    assert plan["kv_bytes_per_token"] == 2 * 2 * 2 * 16 * 4
    assert plan["origins"]["kv_memory"] == "flag"
    assert ctl.ok("ps", "-o", "json").document["items"] == []


def test_ctrl_c_detaches_the_watcher_not_the_engine(ctl: Ctl) -> None:
    ctl.make_model()
    child = ctl.popen("start", "t", "--model", str(ctl.model), "--set", f"executor={PACED}", PACED_LOAD_S="3")
    wait_until(lambda: ctl("status", "t", "-p", "state").out == "starting\n", 20.0, "starting")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=10)
    assert child.returncode == 130
    assert "goes on starting" in err
    ctl.ok("wait", "t", "--for", "ready", "--timeout", "30s")


def test_the_deadline_of_the_watcher_is_not_the_engines(ctl: Ctl) -> None:
    ctl.make_model()
    args = ["start", "t", "--model", str(ctl.model), "--set", f"executor={PACED}"]
    late = ctl(*args, "--timeout", "1s", "-o", "json", PACED_LOAD_S="4")
    assert late.code == 124
    assert "--timeout 1.0s" in late.document["message"]
    assert ctl.ok(*args, "--timeout", "40s", "-o", "json").document["changed"] is False


def test_detached_start_returns_at_once(ctl: Ctl) -> None:
    ctl.make_model()
    args = ["start", "t", "--model", str(ctl.model), "--set", f"executor={PACED}", "-d", "-o", "json"]
    assert ctl.ok(*args, PACED_LOAD_S="3").document["state"] == "starting"
    assert ctl("drain", "t").code == 5
    ctl.ok("stop", "t")


def test_parallel_starts_give_one_engine(ctl: Ctl) -> None:
    ctl.make_model()
    args = ["start", "t", "--model", str(ctl.model), "--set", f"executor={PACED}", "-o", "json"]
    same = [ctl.popen(*args, PACED_LOAD_S="4") for _ in range(6)]
    other = ctl.popen(*args, "--set", "seed=5", PACED_LOAD_S="4")
    documents, codes = [], []
    for child in (*same, other):
        out, _ = child.communicate(timeout=90)
        documents.append(json.loads(out))
        codes.append(child.returncode)
    winners = [document for document in documents if document.get("changed")]
    assert len(winners) == 1
    assert len({document["instance"] for document in documents if document["kind"] == "Engine"}) == 1
    assert sorted(codes) in ([0] * 6 + [7], [0] + [7] * 6)


def test_an_interpreter_without_the_engine_is_named(ctl: Ctl, tmp_path: Path) -> None:
    ctl.make_model()
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    result = ctl("start", "t", "--model", str(ctl.model), "--python", str(bare), "-o", "json")
    assert result.code == 8
    assert result.document["id"] == "E1204"
    assert "torch" in result.document["cause"]
    assert "pip install 'enginectl[engine]'" in result.document["try"][0]
    assert ctl("start", "t", "--model", str(ctl.model), "--python", "/no/such").code == 2


def test_killed_mid_way_the_name_can_start_again(ctl: Ctl) -> None:
    ctl.make_model()
    args = ["start", "t", "--model", str(ctl.model), "--set", f"executor={PACED}"]
    child = ctl.popen(*args, PACED_LOAD_S="3")
    wait_until(lambda: ctl("status", "t", "-p", "state").out == "starting\n", 20.0, "starting")
    child.kill()
    child.communicate(timeout=10)
    assert ctl.ok(*args, "-o", "json").document["changed"] is False


def test_the_foreground_logs_to_stderr_and_ends_on_term(ctl: Ctl) -> None:
    ctl.make_model()
    child = ctl.popen("run", "t", "--model", str(ctl.model), "--set", f"executor={PACED}")
    ctl_ready = wait_until(lambda: ctl("wait", "t", "--for", "ready", "--timeout", "20s").code == 0, 40.0, "ready")
    assert ctl_ready
    assert ctl("run", "t").code == 7
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=20)
    assert child.returncode == 0
    assert "ready" in err
