"""The command tree as plain data: every verb with its arguments, options, values and examples.

Enters: the table of verbs (each module is imported). Leaves: frozen rows. Completions, man pages and `--help` say the
same because they are made from these rows. Reads only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from enginectl.group import build, examples_of, tidy
from enginectl.verbs import VERBS

GLOBAL = ("-o", "--output")


class Option(NamedTuple):
    names: tuple[str, ...]
    metavar: str
    """Empty for a flag."""
    help: str
    """With its default and its environment twin."""
    choices: tuple[str, ...]
    repeats: bool


class Argument(NamedTuple):
    metavar: str
    """As written, without brackets and dots: NAME, ID, FILE.gguf."""
    shown: str
    help: str
    required: bool
    repeats: bool


class Command(NamedTuple):
    path: tuple[str, ...]
    summary: str
    help: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...]
    examples: tuple[str, ...]
    children: tuple[Command, ...]
    takes_rest: bool
    """Words behind `--` belong to another command."""

    @property
    def name(self) -> str:
        return " ".join(self.path)


def command_tree() -> list[Command]:
    """All verbs in the order of `--help`. Imports every verb's module."""
    return [_command(build(verb), (verb.name,), verb.summary, examples_of(verb)) for verb in VERBS.values()]


def leaves(commands: list[Command]) -> Iterator[Command]:
    """Commands that do something: verbs, and the commands of verbs that have some."""
    for command in commands:
        if command.children:
            yield from leaves(list(command.children))
        else:
            yield command


def _command(found: Any, path: tuple[str, ...], summary: str, examples: tuple[str, ...]) -> Command:
    names = getattr(found, "commands", {})
    with found.context_class(found, info_name=" ".join(path), **found.context_settings) as ctx:
        params = found.get_params(ctx)
        options = tuple(_option(one, ctx) for one in params if one.param_type_name == "option" and not one.hidden)
        arguments = tuple(_argument(one, ctx) for one in params if one.param_type_name == "argument" and not one.hidden)
    children = tuple(
        _command(child, (*path, name), _first_sentence(child.help), examples_of(VERBS[path[0]], name))
        for name, child in names.items()
    )
    takes_rest = bool(getattr(found, "takes_rest", False))
    return Command(path, summary, _plain(found.help), options, arguments, examples, children, takes_rest)


def _option(param: Any, ctx: Any) -> Option:
    shown, text = tidy(param.get_help_record(ctx))
    names = tuple(sorted((*param.opts, *param.secondary_opts), key=len))
    metavar = "" if param.is_flag or param.count else shown.rpartition(" ")[2].strip("<>")
    choices = tuple(metavar.split("|")) if re.fullmatch(r"[a-z]+(\|[a-z]+)+", metavar) else _few(param.type)
    return Option(names, metavar, text, choices, bool(param.multiple))


def _few(kind: Any) -> tuple[str, ...]:
    """The numbers of a range that has few."""
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    if not isinstance(low, int) or not isinstance(high, int) or high - low > 9:
        return ()
    return tuple(map(str, range(low, high + 1)))


def _argument(param: Any, ctx: Any) -> Argument:
    shown = param.make_metavar(ctx=ctx)
    _, text = tidy(param.get_help_record(ctx))
    return Argument(re.sub(r"[\[\]]|\.\.\.", "", shown), shown, text, bool(param.required), param.nargs == -1)


def _plain(text: str | None) -> str:
    return " ".join((text or "").split())


def _first_sentence(text: str | None) -> str:
    return _plain(text).split(". ")[0].rstrip(".")
