"""A word in a prompt, and what came of it, is in no file that is written and in no document that is printed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.ctl import Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
WORD = "xylophonist"
DOCUMENTS = (
    "ps", "status t", "requests t", "explain -e t {id}", "events t", "logs t", "logs t --supervisor", "top t --once",
    "call -e t requests", "call -e t stats", "call -e t describe", "metrics t", "abort -e t {id}",
)  # fmt: skip


def test_a_planted_word_is_nowhere(ctl: Ctl) -> None:
    ctl.start("t", PACED_STEP_MS="20")
    words = " ".join([WORD] * 5)
    child = ctl.popen("generate", "-e", "t", words, "--max-tokens", "1500", "--ignore-eos")
    (request,) = ctl.wait_running(1)
    ids = ctl.ok("generate", "-e", "t", words, "--max-tokens", "1", "-o", "json").out
    assert WORD not in ids
    for line in DOCUMENTS:
        result = ctl.ok(*line.format(id=request["id"]).split(), "-o", "json")
        assert WORD not in result.out + result.err, line
        assert "prompt_token_ids" not in result.out, line
    assert child.wait(20) != 0
    os.kill(ctl.record()["engine"]["pid"], signal.SIGKILL)
    wait_until(lambda: ctl("status", "t", "--exit-status").code == 9, 20.0, "its post-mortem")
    files = [path for root in (ctl.base / "state", ctl.runtime) for path in root.rglob("*") if path.is_file()]
    assert {"engine.log", "supervisor.log", "record.json", "requests.json"} <= {path.name for path in files}
    assert not [path for path in files if WORD.encode() in Path(path).read_bytes()]
