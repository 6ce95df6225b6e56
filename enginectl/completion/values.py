"""What stands in the place of a value: for every option and argument the kind of thing that completes it.

Kinds are words of the scripts (`engine`, `running`, `request`, `utility`, `setting`, `model`, `file`, `dir`), `=a b c`
for a closed list, or empty where nobody can know. Pure."""

from __future__ import annotations

from typing import get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

from enginectl.conditions import STATES
from enginectl.control import EngineView
from enginectl.errors_help import ERRORS
from enginectl.models import DEFAULT_MODEL
from enginectl.settings_help import SETTINGS
from enginectl.tree import Argument, Command, Option
from enginectl.verbs import VERBS

KNOWN_ENGINES = frozenset({"start", "run", "status", "events", "logs", "top", "wait", "restart", "unit", "config show"})
"""Verbs that also speak of engines that do not run; the others are offered running ones."""
BY_METAVAR = {
    "M": "model",
    "K=V": "setting",
    "PATH": "file",
    "FILE": "file",
    "FILE.gguf": "file",
    "FOLDER": "dir",
    "DIR": "dir",
    "ID": "request",
    "UTILITY": "utility",
    "POLICY": "=no on-failure always",
    "KIND": "=enginectl vllm",
}
BY_NAME = {"--for": f"={' '.join(STATES)}", "--dtype": "=bfloat16 float16 float32"}
PLAIN = {"call --arg": "", "model fetch NAME": f"={DEFAULT_MODEL}"}
"""Where a metavar means something else than everywhere."""


def kind_of_option(command: Command, option: Option) -> str:
    """Of the value of `option`; empty for one that nobody can complete."""
    longest = option.names[-1]
    if (special := PLAIN.get(f"{command.name} {longest}")) is not None:
        return special
    if option.choices:
        return "=" + " ".join(option.choices)
    if option.metavar == "KEY":
        return "=" + " ".join(properties())
    if "-e" in option.names and option.metavar == "NAME":
        return _engines(command)
    return BY_NAME.get(longest, BY_METAVAR.get(option.metavar, ""))


def kind_of_argument(command: Command, argument: Argument) -> str:
    if (special := PLAIN.get(f"{command.name} {argument.metavar}")) is not None:
        return special
    if argument.metavar == "NAME":
        return _engines(command)
    if argument.metavar == "VERB|ERROR-ID":
        return "=" + " ".join((*VERBS, *ERRORS))
    words = argument.metavar.split("|")
    if len(words) > 1 and all(word.islower() for word in words):
        return "=" + " ".join(words)
    return BY_METAVAR.get(argument.metavar, "")


def _engines(command: Command) -> str:
    return "engine" if command.name in KNOWN_ENGINES else "running"


def properties() -> list[str]:
    """What `status -p` can print: the fields of an engine's page, and of what they hold."""
    keys: list[str] = []
    for field in fields(EngineView):
        kinds = () if get_origin(field.type) is list else (field.type, *get_args(field.type))
        held = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)]
        keys += [f"{field.name}.{inner.name}" for kind in held for inner in fields(kind)] or [field.name]
    return keys


def settings() -> dict[str, tuple[str, ...]]:
    """Names for --set, each with the values it can have where there are few."""
    return {name: meaning.values for name, meaning in SETTINGS.items()}
