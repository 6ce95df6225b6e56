"""`enginectl config`: what a start would use and where each value comes from; whether the files can be used.

Reads only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from engine.config import FIELDS
from enginectl import config, text
from enginectl.asking import ask
from enginectl.commands.start import ModelOption, SetOption
from enginectl.context import DEFAULT_NAME, one_name
from enginectl.errors import CtlError, Exit, UsageError
from enginectl.group import ChildGroup, VerbCommand
from enginectl.options import EngineOption, Format, OutputOption
from enginectl.output import out

EXAMPLES = ("enginectl config show --origin", "enginectl config check")
CHILD_EXAMPLES = {
    "show": ("enginectl config show --origin", "enginectl config show qwen --changed"),
    "check": ("enginectl config check", "enginectl config check ./enginectl.toml"),
}
app = typer.Typer(
    cls=ChildGroup,
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Show what a start would use, and check the config files.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
OPTION_DEFAULTS: dict[str, object] = {"timeout": "10m", "grace": "10s", "restart": "no", "python": None, "gpus": None}


@app.command("show", cls=VerbCommand)
def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", show_default=False, help="Engine; alone: `default`."),
    ] = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Leave out what has its default.")] = False,
    model: ModelOption = None,
    set: SetOption = None,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Show every setting and option as `start NAME` would use it.

    What comes first wins: flag, ENGINECTL_*, what NAME was last started with, the project's enginectl.toml, the user's,
    default."""
    asked = ask(one_name(name, engine) or DEFAULT_NAME, model=model, sets=set or ())
    layer = dict(asked.layer)
    for key in (*FIELDS, *config.OPTIONS):
        if key not in layer and not changed:
            value = config.default_of(key) if key in FIELDS else OPTION_DEFAULTS[key]
            layer[key] = config.Value(value, "default")
    ordered = sorted(layer, key=lambda key: (key in config.OPTIONS, key != "model", key))
    out.document(
        "Config",
        {
            "name": asked.name,
            "items": [{"key": key, "value": layer[key].value, "origin": layer[key].origin} for key in ordered],
            "files": [str(path) for path in files()],
        },
    )
    rows = [[key, _shown(key, layer[key].value), layer[key].origin] for key in ordered]
    headers = ("KEY", "VALUE", "ORIGIN")
    width = 3 if origin else 2
    out.text(*text.table(headers[:width], [row[:width] for row in rows], left=(0, 1, 2), width=out.table_width))


def _shown(key: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if key in ("timeout", "grace") and isinstance(value, float):
        return text.seconds(value)
    return text.one_line(str(value))


@app.command("check", cls=VerbCommand)
def check(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", show_default=False, help="TOML files; alone: those that a start reads."),
    ] = None,
    output: OutputOption = Format.text,
) -> int:
    """Check config files and ENGINECTL_* variables: unknown keys, wrong values, files that others may write."""
    items: list[dict[str, object]] = []
    failed: list[CtlError] = []
    for what in [*(paths or files()), None]:
        try:
            count = len(config.environment_layer(os.environ)) if what is None else _check_file(what)
        except CtlError as error:
            failed.append(error)
            items.append(
                {"file": str(what or "environment"), "ok": False, "error": error.message, "cause": error.cause}
            )
        else:
            items.append({"file": str(what or "environment"), "ok": True, "keys": count})
    out.document("ConfigCheck", {"items": items})
    for item in items:
        if item["ok"]:
            out.text(f"{item['file']}  ok   {item['keys']} keys")
    for failure in failed:
        out.error_text(failure)
    if not paths and not files():
        out.say(f"no {config.FILE_NAME} here or above, none in the user's config directory")
    return int(Exit.USAGE) if failed else int(Exit.OK)


def _check_file(path: Path) -> int:
    """Its keys, counted, for every engine it names. Raises UsageError."""
    if not path.is_file():
        raise UsageError(f"cannot read {path}", cause="no such file")
    names = config.engine_names(path)
    layers = [config.file_layer(path, name) for name in ("", *names)]
    return len({(key, value.origin) for layer in layers for key, value in layer.items()})


def files() -> list[Path]:
    """The files that a start reads here: project, then user. Raises UsageError for one that is refused."""
    found = [config.project_file(), config.user_file(os.environ)]
    return list(dict.fromkeys(path for path in found if path is not None))
