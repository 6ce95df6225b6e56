"""The scripts in the real shells: what TAB offers, and that the command takes each word of it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import typer

from engine.config import FIELDS, EngineConfig
from enginectl.config import parse_sets
from enginectl.group import VerbGroup, build
from enginectl.tree import Command, command_tree, leaves
from enginectl.verbs import VERBS
from tests.enginectl.completion.conftest import IDS
from tests.support.shells import Fish, Shell

pytestmark = pytest.mark.e2e
SAMPLES = {"N": "3", "X": "0.5", "DURATION": "9s", "TEXT": "word", "K=V": "a=b", "0,1": "0", "ID=BIAS": "1=2"}


def _parses(command: Command, args: list[str]) -> bool:
    """Whether the real parser takes these words behind the command."""
    found = build(VERBS[command.path[0]])
    for name in command.path[1:]:
        found = found.commands[name]
    try:
        found.make_context(command.name, args)
    except typer.Exit as end:
        return end.exit_code == 0
    return True


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("enginectl sta", ["stacks", "start", "status"]),
        ("enginectl -o ", ["json", "text"]),
        ("enginectl -o json stat", ["status"]),
        ("enginectl ps --output=", ["--output=json", "--output=text"]),
        ("enginectl start ", ["dead", "qwen", "tiny.v2"]),
        ("enginectl drain ", ["qwen", "tiny.v2"]),
        ("enginectl stop qwen ", ["qwen", "tiny.v2"]),
        ("enginectl stop --grace 5s t", ["tiny.v2"]),
        ("enginectl status -e de", ["dead"]),
        ("enginectl call ", ["describe", "pause_scheduler", "ping"]),
        ("enginectl call -e qwen ", ["describe", "pause_scheduler"]),
        ("enginectl call --engine=tiny.v2 ", ["ping"]),
        ("enginectl call -e tiny.v2 --timeout 3s ", ["ping"]),
        ("enginectl abort ", sorted(IDS)),
        ("enginectl abort cmpl:", ["cmpl:2=x"]),
        ("enginectl abort -e tiny.v2 ", []),
        ("enginectl start --set max_num_", ["max_num_batched_tokens=", "max_num_seqs="]),
        ("enginectl start --set dtype=b", ["dtype=bfloat16"]),
        ("enginectl start --set=dtype=b", ["--set=dtype=bfloat16"]),
        ("enginectl run --restart ", ["always", "no", "on-failure"]),
        ("enginectl start --model a", ["a file.gguf"]),
        ("enginectl model ", ["convert", "fetch", "ls"]),
        ("enginectl model fetch --py", ["--python"]),
        ("enginectl drain --on-timeout ", ["abort", "fail"]),
        ("enginectl help E141", ["E1410", "E1411"]),
        ("enginectl wait --for ", ["idle", "ready", "stopped"]),
        ("enginectl generate --max-tokens ", []),
        ("enginectl start -- --", []),
        ("enginectl start --engine ", ["enginectl", "vllm"]),
        ("enginectl start qwen -- ", []),
        ("enginectl start -- ", []),
        ("enginectl stop -- q", ["qwen"]),
        ("enginectl nothing ", []),
    ],
)
def test_what_a_line_is_completed_with(shell: Shell | Fish, folder: Path, line: str, wanted: list[str]) -> None:
    assert sorted(shell.candidates(line)) == wanted
    assert not (folder / "python-was-started").exists()


def test_every_verb_and_no_other_word_is_offered(shell: Shell | Fish) -> None:
    found = shell.candidates("enginectl ")
    assert sorted(found) == sorted(VERBS)
    group = VerbGroup(name="enginectl", rich_markup_mode=None)
    assert all(group.resolve_command(None, [word])[0] == word for word in found)


def test_each_option_of_each_verb_is_offered_and_the_command_takes_it_with_its_values(shell: Shell | Fish) -> None:
    for command in leaves(command_tree()):
        offered = sorted(shell.candidates(f"enginectl {command.name} -"))
        if not isinstance(shell, Fish):
            offered = sorted(set(offered) | set(shell.candidates(f"enginectl {command.name} --")))
        assert offered == sorted(name for option in command.options for name in option.names), command.name
        need = [SAMPLES.get(one.metavar, one.metavar.split("|")[0]) for one in command.arguments if one.required]
        for option in command.options:
            for name in option.names:
                assert _parses(command, [*need, *_with_value(option.metavar, name, option.choices)]), (
                    command.name,
                    name,
                )
        for option in (one for one in command.options if one.choices):
            assert sorted(shell.candidates(f"enginectl {command.name} {option.names[-1]} ")) == sorted(option.choices)


def _with_value(metavar: str, name: str, choices: tuple[str, ...]) -> list[str]:
    return [name, choices[0] if choices else SAMPLES.get(metavar, "word")] if metavar else [name]


def test_each_setting_that_is_offered_is_a_setting(shell: Shell | Fish) -> None:
    known = set()
    for word in shell.candidates("enginectl start --set "):
        values = shell.candidates(f"enginectl start --set {word}") if word.endswith("=") else [word]
        known.add(word.partition("=")[0])
        for value in values:
            name, _, text = value.partition("=")
            if text:
                layer = parse_sets([value])
                msgspec.convert({"model": "m", name: layer[name].value}, EngineConfig)
    assert known == set(FIELDS)


def test_tab_puts_in_the_only_word_and_quotes_what_has_to_be(shell: Shell | Fish) -> None:
    if isinstance(shell, Fish):
        pytest.skip("fish is asked by `complete -C`, which inserts nothing")
    assert shell.press("enginectl drai") == "enginectl drain "
    assert shell.press("enginectl start --set dty").rstrip(" ") == "enginectl start --set dtype="
    assert shell.press("enginectl start --model a\\ fi").rstrip(" ") == "enginectl start --model a\\ file.gguf"
