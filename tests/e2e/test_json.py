"""`-o json`, verb by verb: exactly one document on stdout, on success and on failure, with the code it ends with."""

from __future__ import annotations

import json

import pytest

from enginectl.verbs import VERBS
from tests.support.ctl import Ctl

pytestmark = pytest.mark.e2e
SUCCEEDS: dict[str, list[str]] = {
    "abort": ["--all", "--yes"],
    "call": ["ping"],
    "chat": ["hello", "--max-tokens", "2"],
    "config": ["show"],
    "cordon": [],
    "doctor": [],
    "dump": ["--out", "dump.tar.gz"],
    "events": [],
    "generate": ["hello", "--max-tokens", "2"],
    "help": [],
    "logs": [],
    "metrics": [],
    "model": ["ls"],
    "pause": [],
    "probe": [],
    "ps": [],
    "requests": [],
    "resume": [],
    "sleep": [],
    "stacks": [],
    "status": [],
    "top": ["--once"],
    "uncordon": [],
    "unit": [],
    "version": [],
    "wait": ["--for", "ready"],
    "wake": [],
}
UNDOES = {"cordon": "uncordon", "pause": "resume", "sleep": "wake"}
ENDS_IT = {"stop", "drain", "kill", "restart", "start", "run"}
"""Their documents are shown where an engine of their own is started and ended."""
NEEDS_A_SHELL = {"completion"}
NEEDS_A_REQUEST = {"explain"}


def documents(text: str) -> list[dict[str, object]]:
    """stdout has to be one line, and that one document."""
    assert text.count("\n") == 1, text
    return [json.loads(line) for line in text.splitlines()]


def test_every_verb_is_here() -> None:
    assert set(SUCCEEDS) | ENDS_IT | NEEDS_A_SHELL | NEEDS_A_REQUEST == set(VERBS)


@pytest.mark.parametrize("verb", sorted(SUCCEEDS))
def test_success_is_one_document(served: Ctl, verb: str) -> None:
    result = served(verb, *SUCCEEDS[verb], "-o", "json")
    if verb in UNDOES:
        served.ok(UNDOES[verb])
    assert result.code == 0, result.err
    (found,) = documents(result.out)
    assert (found["schema"], bool(found["kind"])) == ("enginectl/v1", True)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_mistake_is_one_document_with_its_code(served: Ctl, verb: str) -> None:
    result = served(verb, "--no-such-option", "-o", "json")
    (found,) = documents(result.out)
    assert (found["kind"], found["id"], found["exit"]) == ("Error", "E1001", result.code)
