"""Man pages: prose from man/src, OPTIONS from the command tree, EXIT STATUS from the table of exit codes.

Enters: sources and the tree. Leaves: name of the file -> roff. Reads only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import enginectl
from enginectl.config import default_of
from enginectl.errors import EXIT_MEANINGS, Exit
from enginectl.errors_help import ERRORS
from enginectl.settings_help import OPTIONS, SETTINGS
from enginectl.tree import Command, Option
from enginectl.verbs import GRID, PREFIX
from tools.roff import literal, to_roff

_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_MARK = re.compile(r"^\{\{([a-z]+)((?: [0-9]+)*)\}\}$", re.MULTILINE)


class Source(NamedTuple):
    """One file of man/src."""

    name: str
    section: str
    summary: str
    date: str
    see: str
    body: str

    @property
    def file(self) -> str:
        return f"{self.name}.{self.section}"


def read_source(path: Path) -> Source:
    """Raises ValueError when a head line is missing."""
    head, _, body = path.read_text(encoding="utf-8").partition("\n\n")
    fields = dict(re.split(r":\s*", line, maxsplit=1) for line in head.splitlines())
    missing = {"name", "section", "summary", "date", "see"} - set(fields)
    if missing:
        raise ValueError(f"{path}: no {', '.join(sorted(missing))}")
    return Source(**fields, body=body)


def pages(sources: Path, tree: list[Command]) -> dict[str, str]:
    """Every page of the folder."""
    found = (read_source(path) for path in sorted(sources.glob("*.md")))
    return {source.file: page(source, tree) for source in found}


def page(source: Source, tree: list[Command]) -> str:
    command = _command_of(source, tree)
    body = _MARK.sub(lambda mark: _generated(mark[1], mark[2].split(), command, tree), _COMMENT.sub("", source.body))
    name = f"# NAME\n\n{source.name} - {source.summary}\n\n"
    text = f"{name}{_synopsis(command)}{body}\n\n# SEE ALSO\n\n{_links(source.see)}\n"
    title = f"{literal(source.name.upper())} {source.section} {source.date}"
    head = [
        '.\\" Generated from man/src and the command tree; do not edit.',
        f'.TH {title} "enginectl {enginectl.__version__}" enginectl',
        ".ad l",
        ".nh",
    ]
    return "\n".join(head) + "\n" + to_roff(text).replace(f"{source.name} - ", rf"{literal(source.name)} \- ", 1)


def _command_of(source: Source, tree: list[Command]) -> Command | None:
    verb = source.name.removeprefix("enginectl-")
    return next((command for command in tree if command.name == verb), None)


def _synopsis(command: Command | None) -> str:
    if command is None:
        return ""
    words = [f"*{one.metavar}*{' ...' if one.repeats else ''}" for one in command.arguments]
    shown = [word if one.required else f"[{word}]" for word, one in zip(words, command.arguments, strict=True)]
    rest = ["[**--** *COMMAND* ...]"] if command.takes_rest else []
    return f"# SYNOPSIS\n\n{' '.join([f'**enginectl {command.name}**', '[*OPTION* ...]', *shown, *rest])}\n\n"


def _links(text: str) -> str:
    return ",\n".join(re.sub(r"^(.*)\((\d)\)$", r"**\1**(\2)", link.strip()) for link in text.split(","))


def _generated(mark: str, words: list[str], command: Command | None, tree: list[Command]) -> str:
    """What stands for `{{mark ...}}`. Raises ValueError for one that is not known."""
    match mark:
        case "options" if command is not None:
            return options(command)
        case "exit":
            return exit_rows([Exit(int(word)) for word in words] or list(Exit))
        case "verbs":
            return verbs(tree)
        case "grid":
            return "\n".join("    " + line for line in GRID.splitlines())
        case "settings":
            return setting_rows()
        case "errors":
            return "\n".join(f"**{name}**\n:   exit {int(row.exit)}: {row.title}" for name, row in ERRORS.items())
        case _:
            raise ValueError(f"nothing stands for {mark!r} here")


def options(command: Command) -> str:
    arguments = [f"*{one.metavar}*\n:   {one.help}" for one in command.arguments if one.help]
    return "\n".join([*arguments, *(f"{_names(option)}\n:   {option.help}" for option in command.options)])


def _names(option: Option) -> str:
    names = ", ".join(f"**{name}**" for name in option.names)
    return names + (f" *{option.metavar}*" if option.metavar else "")


def exit_rows(codes: list[Exit]) -> str:
    return "\n".join(f"**{int(code)}**\n:   {EXIT_MEANINGS[code]}" for code in codes)


def verbs(tree: list[Command]) -> str:
    """Grouped by task, as in `--help`."""
    from enginectl.verbs import VERBS

    lines: list[str] = []
    for group in dict.fromkeys(verb.group for verb in VERBS.values()):
        lines += [f"## {group}", ""]
        lines += [f"**{name}**\n:   {verb.summary}" for name, verb in VERBS.items() if verb.group == group]
        lines.append("")
    return "\n".join(lines)


def setting_rows() -> str:
    lines = []
    for name, meaning in SETTINGS.items():
        default = default_of(name)
        said = [f"One of {', '.join(meaning.values)}." if meaning.values else ""]
        said += [
            f"Default: {str(default).lower() if isinstance(default, bool) else default}." if default is not None else ""
        ]
        lines.append(_key(name, " ".join(filter(None, [meaning.text, *said]))))
    lines += [_key(name, f"{meaning.text} An option, not of the engine.") for name, meaning in OPTIONS.items()]
    return "\n".join(lines)


def _key(name: str, text: str) -> str:
    return f"**{name}**\n:   {text} `{PREFIX}{name.upper()}`"
