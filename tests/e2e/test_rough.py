"""Every verb in every rough terminal: the answer it has elsewhere, one document where that is asked for; never an
escape, a traceback, or a character that the stream cannot carry."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest

from enginectl.verbs import VERBS
from tests.e2e.test_json import SUCCEEDS, UNDOES
from tests.support.ctl import Ctl, Result

pytestmark = pytest.mark.e2e
OTHERS = {
    "completion": ["bash"], "drain": ["gone"], "explain": ["nobody"], "kill": ["gone", "--yes"],
    "restart": ["nobody"], "run": ["t"], "start": ["t"], "stop": ["gone"],
}  # fmt: skip
"""Those of which nothing runs or ends here."""
CODES = {"drain": 3, "explain": 4, "restart": 4, "run": 7}
"""What they end with, wherever they are asked; the others with 0."""
ROUGH = {"TERM": "dumb", "NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "40", "LANG": "C", "PYTHONIOENCODING": "ascii"}


@pytest.fixture(scope="module")
def rough(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ctl]:
    """Engine `t` serves, `gone` was stopped; no HOME, and all that makes a terminal rough at once."""
    ctl = Ctl(tmp_path_factory.mktemp("rough"), PACED_STEP_MS="1")
    try:
        for name in ("gone", "t"):
            ctl.start(name)
        ctl.ok("stop", "gone")
        ctl.env |= ROUGH | {"ENGINECTL_ENGINE": "t"}
        del ctl.env["HOME"]
        yield ctl
    finally:
        ctl.close()


def words_of(verb: str, ctl: Ctl) -> list[str]:
    words = [verb, *(SUCCEEDS | OTHERS)[verb]]
    (ctl.base / "dump.tar.gz").unlink(missing_ok=True)
    return words


def undo(verb: str, ctl: Ctl) -> None:
    if verb in UNDOES:
        ctl.ok(UNDOES[verb])


def check(result: Result, verb: str) -> None:
    assert result.code == CODES.get(verb, 0), f"{verb}: {result}"
    assert (result.out + result.err).isascii()
    assert "\x1b" not in result.out + result.err and "Traceback" not in result.err


def test_every_verb_is_here() -> None:
    assert set(SUCCEEDS) | set(OTHERS) == set(VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_one_document_with_all_of_it_at_once(rough: Ctl, verb: str) -> None:
    result = rough(*words_of(verb, rough), "-o", "json")
    undo(verb, rough)
    check(result, verb)
    assert result.out.count("\n") == 1
    assert result.document["kind"] == ("Error" if verb in CODES else result.document["kind"])


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_without_stdout_it_does_the_same_and_says_so(rough: Ctl, verb: str) -> None:
    script = ["bash", "-c", 'exec "$@" >&-', "bash", sys.executable, "-m", "enginectl"]
    done = subprocess.run(
        [*script, *words_of(verb, rough)], env=rough.env, cwd=rough.base, stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    undo(verb, rough)
    check(Result(done.returncode, "", done.stderr), verb)
    if verb not in CODES:
        assert done.stderr.splitlines()[-1] == "note: stdout is closed; what would have been printed there is lost"


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_typed_at_a_terminal_into_a_pipe_it_is_one_document(rough: Ctl, verb: str) -> None:
    """stdin and stderr are a terminal that can draw."""
    master, slave = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "enginectl", *words_of(verb, rough), "-o", "json"], cwd=rough.base,
            env=rough.env | {"TERM": "xterm-256color", "NO_COLOR": ""}, stdin=slave, stderr=slave,
            stdout=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(slave)
        os.close(master)
    undo(verb, rough)
    assert done.returncode == CODES.get(verb, 0)
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["schema"] == "enginectl/v1"
