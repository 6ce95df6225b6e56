"""The command group: lists verbs from the table without importing them, imports the one that is called.

Enters: argv after the program name, and the variables of its options, which are named here. Leaves: the verb's own
return, or a CtlError for what cannot be parsed."""

from __future__ import annotations

import importlib
import math
import re
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
import typer.core
import typer.main

from enginectl.errors import UsageError
from enginectl.verbs import GRID, OTHER_CHILDREN, OTHER_WORDS, PREFIX, VERBS, Verb, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

click_errors: Any = importlib.import_module(typer.BadParameter.__module__)
"""click's exceptions, wherever this typer keeps them (vendored since 0.26)."""
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "auto_envvar_prefix": None}
HELP = "systemctl for LLM engine processes: look inside, call, abort, drain, stop."
EXAMPLES = (
    ("start the embedded model and wait until it is ready", "enginectl start"),
    ("what is going on, and what is it waiting for", "enginectl status"),
    ("end one request, leave the others", "enginectl abort ID"),
)

REST = "enginectl.rest"
STANDING = ("output", "engine")
"""Parameters whose variables one sets for good: no error is likely to be theirs."""


def rest_of(ctx: Any) -> list[str] | None:
    """What stood behind `--`; None when there was none."""
    found: list[str] | None = ctx.meta.get(REST)
    return found


def build(verb: Verb) -> Any:
    """The click command of a verb; imports its module."""
    module = importlib.import_module(verb.module)
    entry = getattr(module, verb.entry)
    examples = getattr(module, "EXAMPLES", ())
    if isinstance(entry, typer.Typer):
        group = typer.main.get_group(entry)
        for name, child in group.commands.items():
            child.epilog = _epilog(examples_of(verb, name), give_twins(child, verb.name, name))
        group.epilog = _epilog(examples)
        command: Any = group
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        settings = dict(CONTEXT_SETTINGS) | getattr(module, "CONTEXT", {})
        text = entry.__doc__ or verb.summary
        app.command(verb.name, cls=VerbCommand, help=text, context_settings=settings)(entry)
        command = typer.main.get_command(app)
        command.epilog = _epilog(examples, give_twins(command, verb.name))
    command.name = verb.name
    if isinstance(command, VerbCommand):
        command.takes_rest = getattr(module, "TAKES_REST", False)
    return command


def examples_of(verb: Verb, child: str = "") -> tuple[str, ...]:
    """Of the verb, or of one of its commands."""
    module = importlib.import_module(verb.module)
    return tuple(module.CHILD_EXAMPLES[child] if child else getattr(module, "EXAMPLES", ()))


def _epilog(examples: Sequence[str], twins: Sequence[tuple[str, str]] = ()) -> str | None:
    lines = ["Examples:", *(f"  {line}" for line in examples)] if examples else []
    if twins:
        option, variable = twins[0]
        others = ", and so on for each option" if twins[1:] else ""
        lines += [""] * bool(lines) + [f"Environment: {variable} is {option}{others}."]
    return "\n".join(["\b", *lines]) if lines else None


def give_twins(command: Any, *path: str) -> list[tuple[str, str]]:
    """To each option that has none a variable: --hold-limit of start is ENGINECTL_START_HOLD_LIMIT. Help says so once,
    not in each row. Returns (option, variable)."""
    given = []
    for param in command.params:
        has_one = param.envvar or "[env: " in (param.help or "")
        if param.param_type_name == "option" and not has_one and not param.hidden:
            option = max(param.opts, key=len)
            param.envvar = "_".join([PREFIX + path[0], *path[1:], option.lstrip("-")]).upper().replace("-", "_")
            param.show_envvar = False
            given.append((option, param.envvar))
    return given


def twins_of(verb: Verb) -> list[str]:
    """The variables of its options alone. Imports its module."""
    command = build(verb)
    leaves = getattr(command, "commands", {"": command}).values()
    return [param.envvar for leaf in leaves for param in leaf.params if param.envvar and not param.show_envvar]


def tidy(record: tuple[str, str]) -> tuple[str, str]:
    """A row of help as it is shown everywhere: `[default: 10m]  [env: ENGINECTL_TIMEOUT]`."""
    name, text = record
    for kind, word in (("int", "N"), ("float", "X"), ("str", "TEXT"), ("path", "PATH")):
        name = re.sub(rf"<{kind}( range)?>", word, name)
    text = re.sub(r"default: \(([^)]*)\)", r"default: \1", text).replace("env var: ", "env: ")
    text = re.sub(r"\[(env: [^];]*); ([^]]*)\]", r"[\2] [\1]", text)
    return name, re.sub(r"  +\[", " [", text)


def check_numbers(param: Any, value: object) -> None:
    """What no message can carry is refused here, whatever the option. Raises UsageError."""
    for one in value if isinstance(value, (list, tuple)) else [value]:
        name = param.opts[0] if param.param_type_name == "option" else param.human_readable_name
        if isinstance(one, int) and not -(2**63) <= one < 2**63:
            raise UsageError(f"{name}: {one} does not fit 64 bits")
        if isinstance(one, float) and not math.isfinite(one):
            raise UsageError(f"{name} must be a finite number, not {one}")


class VerbCommand(typer.core.TyperCommand):
    """One verb; its help shows defaults and environment twins alike for every option."""

    takes_rest = False
    """Words behind `--` are not its arguments but a command or arguments for somebody else: rest_of(context)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.takes_rest and "--" in args:
            cut = args.index("--")
            ctx.meta[REST] = args[cut + 1 :]
            args = args[:cut]
        ctx.allow_extra_args = True  # what is too much is refused here, in our words
        with self._naming_twins(ctx):
            parsed: list[str] = super().parse_args(ctx, args)
        if ctx.args:
            raise too_many(ctx, ctx.args)
        for param in self.params:
            check_numbers(param, ctx.params.get(param.name))
        return parsed

    def invoke(self, ctx: Any) -> Any:
        with self._naming_twins(ctx):
            return super().invoke(ctx)

    @contextmanager
    def _naming_twins(self, ctx: Any) -> Iterator[None]:
        """An error about a value that may not have been typed names the variables that were used."""
        try:
            yield
        except UsageError as error:
            error.cause = error.cause or _used_twins(self.params, ctx)
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        for kind, title in (("argument", "Arguments"), ("option", "Options")):
            params = [one for one in self.get_params(ctx) if one.param_type_name == kind]
            rows = [tidy(row) for one in params if (row := one.get_help_record(ctx)) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class ChildGroup(typer.core.TyperGroup):
    """A verb with commands of its own, as `model`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args[0] in known or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        path = ctx.command_path
        word = f"{ctx.info_name} {args[0]}"
        if word in OTHER_CHILDREN:
            raise UsageError(f"no command {args[0]!r} in {path!r}", try_=[OTHER_CHILDREN[word], f"{path} --help"])
        near = nearest(args[0], known)
        raise UsageError(
            f"no command {args[0]!r} in {path!r}" + (f"; did you mean {near!r}?" if near else ""),
            cause=f"there are {', '.join(known)}",
            try_=[*([f"{path} {_quoted([near, *args[1:]])}"] if near else []), f"{path} --help"],
        )


class VerbGroup(typer.core.TyperGroup):
    """`enginectl` itself."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return build(VERBS[cmd_name]) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in VERBS:
            raise unknown_verb(args[0], args[1:])
        return args[0], self.get_command(ctx, args[0]), args[1:]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write("\n".join(help_lines()) + "\n")


def help_lines() -> list[str]:
    """`enginectl --help`, grouped by task."""
    lines = ["Usage: enginectl [OPTIONS] VERB [ARGS]...", "", f"  {HELP}"]
    width = max(len(name) for name in VERBS)
    for group in dict.fromkeys(verb.group for verb in VERBS.values()):
        lines += ["", f"{group}:"]
        lines += [f"  {v.name:<{width}}  {v.summary}" for v in VERBS.values() if v.group == group]
    lines += [
        "",
        *GRID.splitlines(),
        "",
        "Options:",
        "  -o, --output [text|json]  json: exactly one document on stdout.",
        "  --version                 Print the version.",
        "  -h, --help                Show this; after a verb: that verb.",
    ]
    lines += ["", "Examples:"]
    comment = max(len(command) for _, command in EXAMPLES)
    return lines + [f"  {command:<{comment}}   # {why}" for why, command in EXAMPLES]


def unknown_verb(word: str, rest: Sequence[str] = ()) -> UsageError:
    """What to say to a word that is no verb: the right one for other tools' words, else the nearest. With the rest of
    what was typed: without a name a verb means whichever engine runs."""
    right = OTHER_WORDS.get(word, "")
    near = right or nearest(word, list(VERBS)) or OTHER_WORDS.get(nearest(word, list(OTHER_WORDS)), "")
    if not near:
        return UsageError(f"no verb {word!r}", try_=["enginectl --help"])
    again = f"enginectl {near} {_quoted(rest)}".rstrip()
    if right:
        return UsageError(f"no verb {word!r}; here it is {right!r}", try_=[again])
    return UsageError(f"no verb {word!r}; did you mean {near!r}?", try_=[again, "enginectl --help"])


def _quoted(words: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, words))


def too_many(ctx: Any, extra: Sequence[str]) -> UsageError:
    """Words that the verb has no place for."""
    path, takes = ctx.command_path, [one for one in ctx.command.params if one.param_type_name == "argument"]
    names = " ".join(one.make_metavar(ctx) for one in takes)
    what = f"{path} takes {names} and no more" if takes else f"{path} takes no arguments"
    meant = [f"enginectl status {_quoted(extra)}"] if path.endswith(" ps") and len(extra) == 1 else []
    return UsageError(f"{what}: {_quoted(extra)} is too much", try_=[*meant, f"{path} --help"])


def parse_error(error: Any) -> UsageError:
    """A CtlError for what click found wrong with the command line."""
    path = error.ctx.command_path if getattr(error, "ctx", None) else "enginectl"
    if isinstance(error, click_errors.NoArgsIsHelpError):
        return UsageError(
            f"{path} wants one of {', '.join(error.ctx.command.list_commands(error.ctx))}", try_=[f"{path} --help"]
        )
    if isinstance(error, click_errors.NoSuchOption):
        return _no_such_option(error, path)
    message = " ".join(error.format_message().split())
    param, ctx = getattr(error, "param", None), getattr(error, "ctx", None)
    cause = _used_twins([param], ctx) if param is not None and ctx is not None else ""
    return UsageError(message, cause=cause, try_=[f"{path} --help"])


def _is_from_environment(param: Any, ctx: Any) -> bool:
    source = ctx.get_parameter_source(param.name)
    return source is not None and source.name == "ENVIRONMENT"


def _used_twins(params: Sequence[Any], ctx: Any) -> str:
    used = [one.envvar for one in params if one.name not in STANDING and _is_from_environment(one, ctx)]
    return f"options come from the environment: {', '.join(used)}" if used else ""


def _no_such_option(error: Any, path: str) -> UsageError:
    name = error.option_name
    known = [opt for param in error.ctx.command.params for opt in getattr(param, "opts", []) if opt.startswith("-")]
    if path.split()[-1:] in (["start"], ["run"]):
        from engine.config import FIELDS

        setting = name.lstrip("-").replace("-", "_")
        if setting in FIELDS:
            return UsageError(f"no option {name!r}; it is a setting", try_=[f"{path} --set {setting}=VALUE"])
    near = nearest(name, known)
    if near:
        return UsageError(f"no option {name!r}; did you mean {near!r}?", try_=[f"{path} --help"])
    return UsageError(
        f"no option {name!r}", cause=f"there are {', '.join(known)}" if known else "", try_=[f"{path} --help"]
    )
