from __future__ import annotations

import re
import shlex

import typer.core

from engine.config import FIELDS
from enginectl.config import OPTIONS, VARIABLES
from enginectl.group import build, tidy, twins_of
from enginectl.tree import command_tree, leaves
from enginectl.verbs import PREFIX, VERBS


def test_the_tree_has_every_verb_with_its_options_and_examples() -> None:
    tree = command_tree()
    assert [command.path[0] for command in tree] == list(VERBS)
    for command in tree:
        assert len(command.examples) >= 2, command.name
        assert all("enginectl" in line for line in command.examples)
        assert command.options[-1].names == ("-h", "--help")


def test_rows_say_what_help_says() -> None:
    start = next(command for command in command_tree() if command.name == "start")
    options = {option.names[-1]: option for option in start.options}
    assert options["--timeout"].metavar == "DURATION"
    assert options["--timeout"].help.endswith("[env: ENGINECTL_TIMEOUT] [default: 10m]")
    assert (options["--set"].repeats, options["--detach"].metavar) == (True, "")
    assert options["--output"].choices == ("text", "json")


def test_leaves_are_what_does_something() -> None:
    names = [command.name for command in leaves(command_tree())]
    assert "model convert" in names
    assert "model" not in names


def test_every_option_and_argument_is_explained_with_its_environment_twin() -> None:
    """A variable that several verbs share stands in the option's row, one of its own is told below."""
    for verb in VERBS.values():
        found = build(verb)
        for command in getattr(found, "commands", {"": found}).values():
            own = [param.envvar for param in command.params if param.envvar and not param.show_envvar]
            assert len(own) == len(set(own))
            assert not own or f"Environment: {own[0]} is --" in command.epilog
            for param in command.params:
                assert param.help, (verb.name, param.name)
                if param.param_type_name == "option" and not param.hidden:
                    assert param.envvar or "[env: ENGINECTL_" in param.help, (verb.name, param.name)
                if param.envvar and param.show_envvar:
                    with command.context_class(command, info_name=verb.name) as ctx:
                        assert f"[env: {param.envvar}]" in tidy(param.get_help_record(ctx))[1]


def test_a_variable_of_one_option_is_no_others() -> None:
    """Neither that of another verb's option, nor of a setting."""
    twins = [name for verb in VERBS.values() for name in twins_of(verb)]
    others = {PREFIX + key.upper() for key in (*FIELDS, *OPTIONS)} | set(VARIABLES)
    assert len(twins) > 50 and len(set(twins)) == len(twins) and not others & set(twins)


def test_every_example_of_a_help_page_is_a_command_line_that_is_taken() -> None:
    for command in leaves(command_tree()):
        for line in command.examples:
            for words in split_line(line):
                found, rest = build(VERBS[words[1]]), words[2:]
                while isinstance(found, typer.core.TyperGroup):
                    found, rest = found.commands[rest[0]], rest[1:]
                found.make_context(words[1], rest)


def split_line(line: str) -> list[list[str]]:
    """The commands of ours in a line of shell, without where their output goes."""
    parts = [shlex.split(part.split(" > ")[0]) for part in re.split(r" \| | && ", line)]
    return [words for words in parts if words[0] == "enginectl"]
