"""What is suggested can be typed as it stands, means what was meant, and is no dead end."""

from __future__ import annotations

import shlex

import pytest

from tests.support.ctl import Ctl

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("typed", "suggested"),
    [
        ("rm x", "enginectl stop x"),
        ("rm", "enginectl stop"),
        ("stpo default --yes", "enginectl stop default --yes"),
        ("kil x", "enginectl kill x"),
        ("tail 'a b' -n 3", "enginectl logs -f 'a b' -n 3"),
        ("-o json rm x", "enginectl stop x"),
        ("ps default", "enginectl status default"),
        ("model fech x", "enginectl model fetch x"),
        ("model list", "enginectl model ls"),
        ("config set x", "enginectl start NAME --set KEY=VALUE"),
    ],
)
def test_a_suggestion_keeps_the_rest_of_what_was_typed(ctl: Ctl, typed: str, suggested: str) -> None:
    result = ctl(*shlex.split(typed), ENGINECTL_OUTPUT="json")
    assert (result.code, result.document["id"]) == (2, "E1001")
    assert result.document["try"][0] == suggested


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("version x", "enginectl version takes no arguments: x is too much"),
        ("status a b", "enginectl status takes [NAME] and no more: b is too much"),
        ("model ls x", "enginectl model ls takes no arguments: x is too much"),
        ("model rm x", "no command 'rm' in 'enginectl model'"),
        ("model frob x", "there are ls, fetch, convert"),
        ("status --al", "there are -p, --property, --exit-status"),
        ("ps -a", "there are --running"),
    ],
)
def test_what_is_too_much_or_unknown_is_said_in_plain_words(ctl: Ctl, typed: str, said: str) -> None:
    result = ctl(*typed.split())
    assert (result.code, "error[E1001]" in result.err) == (2, True)
    assert said in result.err


def test_the_default_model_is_known_by_its_whole_name(ctl: Ctl) -> None:
    hub = "HuggingFaceTB/SmolLM2-135M-Instruct"
    suggested = ctl("start", hub, "-o", "json").document["try"][0]
    assert suggested == f"enginectl start smollm2-135m-instruct --model {hub}"
    made = ctl.base / "cache" / "models" / "smollm2-135m-instruct"
    ctl.make_model()
    made.parent.mkdir(parents=True)
    ctl.model.rename(made)
    words = shlex.split(suggested)[1:]
    assert ctl.ok(*words, "--set", "executor=null", "-o", "json").document["model"] == "SmolLM2-135M-Instruct"
    assert ctl.ok("model", "fetch", hub, "-o", "json").document["changed"] is False


def test_a_model_that_nobody_knows_leads_to_no_dead_end(ctl: Ctl) -> None:
    ctl.make_model()
    made = ctl.base / "cache" / "models" / "smollm2-135m-instruct"
    made.parent.mkdir(parents=True)
    ctl.model.rename(made)
    error = ctl("start", "x", "--model", "somebody/Some-Model", "-o", "json").document
    assert (error["id"], error["cause"]) == ("E1205", "known by name: smollm2-135m-instruct")
    assert error["try"] == ["download its directory, then: --model DIR"]
