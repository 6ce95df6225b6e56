from __future__ import annotations

import ast
from pathlib import Path

import pytest

from enginectl import errors
from enginectl.errors import EXIT_MEANINGS, CtlError, Exit
from enginectl.errors_help import ERRORS, explain
from enginectl.group import build, help_lines, unknown_verb
from enginectl.verbs import OTHER_WORDS, VERBS

ROOT = Path(__file__).resolve().parent.parent.parent


def test_help_lists_every_verb_once_by_task() -> None:
    lines = help_lines()
    for verb in VERBS.values():
        assert sum(line.startswith(f"  {verb.name} ") and verb.summary in line for line in lines) == 1
    assert max(map(len, lines)) <= 84


@pytest.mark.parametrize("name", list(VERBS))
def test_every_verb_can_be_built_and_its_help_ends_with_two_examples(name: str) -> None:
    command = build(VERBS[name])
    with command.context_class(command, info_name=f"enginectl {name}") as ctx:
        page = command.get_help(ctx)
    assert page.startswith(f"Usage: enginectl {name}")
    if VERBS[name].entry == "command":
        examples = page[page.index("Examples:") :].splitlines()[1:]
        assert len([line for line in examples if line.strip().startswith(("enginectl", "echo", "cat"))]) >= 2
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--output" in options


@pytest.mark.parametrize("name", ["model", "config"])
def test_the_commands_of_a_verb_end_with_two_examples_too(name: str) -> None:
    group = build(VERBS[name])
    for word, command in group.commands.items():
        with command.context_class(command, info_name=f"enginectl {name} {word}") as ctx:
            page = command.get_help(ctx)
        examples = page[page.index("Examples:") :].splitlines()[1:]
        assert len([line for line in examples if line.strip().startswith(f"enginectl {name} {word}")]) >= 2, page
        assert page.rstrip().endswith(examples[-1].rstrip())


@pytest.mark.parametrize(
    ("word", "verb"),
    [("serve", "start"), ("list", "ps"), ("rm", "stop"), ("strat", "start"), ("generat", "generate"), ("lst", "ps")],
)
def test_the_right_verb_is_suggested(word: str, verb: str) -> None:
    assert f"'{verb}'" in unknown_verb(word).message


def test_other_words_lead_to_verbs_that_exist() -> None:
    assert {target.split()[0] for target in OTHER_WORDS.values()} <= set(VERBS)
    assert not set(OTHER_WORDS) & set(VERBS)


def test_every_error_id_in_the_code_is_explained() -> None:
    used = {
        kind.id: kind.exit for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, CtlError)
    }
    assert {name: ERRORS[name].exit for name in used} == used
    for path in (ROOT / "enginectl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "id" and isinstance(node.value, ast.Constant):
                assert node.value.value in ERRORS, f"{path}: {node.value.value}"
    assert explain("E1203")[0].endswith("(exit 8)")


def test_every_exit_code_has_a_meaning() -> None:
    assert set(EXIT_MEANINGS) == set(Exit)
