"""dump, post-mortems and the flight record: of a living engine, a stalled one, a dead one; never a word of a prompt."""

from __future__ import annotations

import json
import os
import signal
import tarfile
from pathlib import Path

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
WORD = "xylophonequartz"
SECRET = "hunter2-very-secret"


def unpack(path: str | Path) -> dict[str, bytes]:
    """Member without its top folder -> content."""
    with tarfile.open(path) as tar:
        return {
            member.name.partition("/")[2]: file.read()
            for member in tar.getmembers()
            if (file := tar.extractfile(member)) is not None
        }


def start_with_a_secret(ctl: Ctl) -> None:
    """Its settings and its log both know the secret."""
    ctl.start("t", PACED_STEP_MS="10")
    path = ctl.base / "state" / "engines" / "t" / "settings.json"
    settings = json.loads(path.read_text())
    settings["env"]["MY_API_TOKEN"] = SECRET
    path.write_text(json.dumps(settings))
    ctl.ok("restart", "t")


def test_a_bundle_has_everything_but_words(ctl: Ctl) -> None:
    start_with_a_secret(ctl)
    child = ctl.popen("generate", "-e", "t", WORD, "--max-tokens", "1500", "--ignore-eos")
    ctl.wait_running(1)
    document = ctl.ok("dump", "t", "--out", "b.tar.gz", "-o", "json").document
    assert document["path"] == str(ctl.base / "b.tar.gz")
    assert os.stat(document["path"]).st_mode & 0o777 == 0o600
    files = unpack(document["path"])
    wanted = {"engine.json", "events.json", "settings.json", "versions.json", "requests.json", "flight.jsonl"}
    assert wanted | {"stacks.txt", "stats.json", "engine.log", "supervisor.log", "description.json"} <= set(files)
    assert document["files"] == sorted(files) and not document["missing"]
    for name, data in files.items():
        assert WORD.encode() not in data and SECRET.encode() not in data, name
    assert json.loads(files["settings.json"])["env"]["MY_API_TOKEN"] == "[redacted]"
    assert b"run_busy_loop" in files["stacks.txt"]
    head, *steps = [json.loads(line) for line in files["flight.jsonl"].splitlines()]
    assert (head["type"], head["seen_by"]) == ("flight", "engine")
    assert len(steps) >= 2 and steps[-1]["running"] == 1
    evidence = Path(document["evidence"])
    assert evidence.name.endswith("-dump") and (evidence / "flight.jsonl").read_bytes() == files["flight.jsonl"]
    assert ctl("dump", "t", "--out", "b.tar.gz").code == 2
    ctl.ok("abort", "--all", "--yes")
    child.wait(20)


def test_a_dead_engine_has_a_post_mortem_and_a_record_of_its_last_steps(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="10")
    child = ctl.popen("generate", "-e", "t", WORD, "--max-tokens", "1500", "--ignore-eos")
    ctl.wait_running(1)
    os.kill(ctl.record()["engine"]["pid"], signal.SIGSEGV)
    assert child.wait(20) == 9
    ctl.ok("wait", "t", "--for", "stopped")
    page = ctl.ok("status", "t").out
    assert "signal 11 SEGV" in page
    assert "1 running, 0 waiting" in page
    assert "was its last" in page and "evidence" in page and "restarts" in page
    document = ctl.ok("status", "t", "-o", "json").document["last_exit"]
    assert (document["signal"], document["running"]) == ("11 SEGV", 1)
    lines = (Path(document["evidence"]) / "flight.jsonl").read_bytes().splitlines()
    assert json.loads(lines[0])["seen_by"] == "supervisor"
    assert json.loads(lines[-1])["step"] == document["step"]
    result = ctl.ok("dump", "t", "-o", "json", "--no-logs").document
    files = unpack(result["path"])
    assert any(name.endswith("-died/flight.jsonl") for name in files)
    assert not any(name.endswith(".log") for name in files)
    assert not any(WORD.encode() in data for data in files.values())
    for source in (result["path"], str(Path(document["evidence"]) / "flight.jsonl")):
        replayed = ctl.ok("top", "--replay", source)
        assert replayed.out.lstrip().startswith("enginectl top") and "step timing" in replayed.out


def test_a_start_that_failed_says_how_far_it_came(ctl: Ctl) -> None:
    ctl.start("t")
    ctl.ok("stop", "t")
    mark = ctl.base / "fail"
    mark.touch()
    failed = ctl("start", "t", PACED_FAIL_FILE=str(mark))
    assert failed.code == 8
    page = ctl.ok("status", "t").out
    assert "how far the start came:" in page
    assert "broken on purpose" in page
    assert "handshake" in page and "(last " in page


def test_a_stopped_engine_is_dumped_without_its_word(ctl: Ctl) -> None:
    ctl.start("t")
    os.kill(ctl.record()["engine"]["pid"], signal.SIGSTOP)
    wait_until(lambda: ctl("probe", "t").code == 11, 20.0, "stalled")
    evidence = ctl.base / "state" / "engines" / "t" / "evidence"
    wait_until(lambda: any(evidence.glob("*-stalled/flight.jsonl")), 20.0, "evidence of the stall")
    document = ctl.ok("dump", "t", "--timeout", "500ms", "-o", "json").document
    assert "flight.jsonl" in document["files"]
    assert any(line.startswith("stacks.txt") for line in document["missing"])
    os.kill(ctl.record()["engine"]["pid"], signal.SIGCONT)
