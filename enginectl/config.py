"""Where settings come from: flag > ENGINECTL_* > what the engine was last started with > project enginectl.toml >
user config > default.

Enters: the environment and two TOML files. Leaves: values, each with its origin. Unknown keys are errors that name the
nearest known one, and so are variables whose name is nearly one of ours, which a start asks the verbs' modules for.
Creates nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from engine.config import FIELDS, parse_setting, unknown_setting
from engine.errors import ConfigError
from enginectl.errors import UsageError
from enginectl.units import parse_duration
from enginectl.verbs import PREFIX, VERBS, nearest

FILE_NAME = "enginectl.toml"
CONFIG_SETTING = "ENGINECTL_CONFIG"
MISTYPED = 0.8
"""How like a variable's name must be to one that is read: less may be a variable of somebody else."""


UNSET = ("", "-")
"""Texts of a setting that take it back; `config show` shows the second for what is not set."""


class Value(NamedTuple):
    value: Any
    origin: str
    """flag, ENGINECTL_X, recorded, or the file and the table."""


Layer = dict[str, Value]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"not a text: {value!r}")
    return value


def _restart(value: object) -> str:
    return parse_restart(_text(value))


def _seconds(value: object) -> float:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise UsageError(f"not a duration: {value!r}")
    return parse_duration(value)


OPTIONS: dict[str, Callable[[object], object]] = {
    "timeout": _seconds,
    "grace": _seconds,
    "restart": _restart,
    "python": _text,
    "gpus": _text,
}
"""Options of `start` and the like that a file or the environment may set, beside the engine's settings."""
VARIABLES = (
    "ENGINECTL_STATE_DIR", "ENGINECTL_RUNTIME_DIR", "ENGINECTL_CACHE_DIR", "ENGINECTL_CONFIG", "ENGINECTL_ENGINE",
    "ENGINECTL_OUTPUT", "ENGINECTL_NATIVE_DIR",
)  # fmt: skip
"""Variables that are neither settings nor options of a start."""


def parse_restart(text: str) -> str:
    """`no`, `always`, `on-failure` or `on-failure:N`, checked. Raises UsageError."""
    head, _, limit = text.partition(":")
    if text in ("no", "always", "on-failure") or (head == "on-failure" and limit.isdigit()):
        return text
    raise UsageError(f"not a restart policy: {text!r}", try_=["no, on-failure, on-failure:5 or always"])


def dropped_sets(pairs: Iterable[str]) -> frozenset[str]:
    """Settings that `--set K=` takes back: not what was typed the last time, but what a file says, or the default.
    Raises UsageError."""
    found: dict[str, bool] = {}
    for pair in pairs:
        key, _, text = pair.partition("=")
        name = key.replace("-", "_")
        found[name] = text in UNSET
        if found[name] and name not in FIELDS:
            raise UsageError(unknown_setting(key))
    return frozenset(name for name, is_dropped in found.items() if is_dropped)


def parse_sets(pairs: Iterable[str], origin: str = "flag") -> Layer:
    """`--set k=v` ... as a layer, without what is only taken back. Raises UsageError."""
    layer: Layer = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise UsageError(f"--set wants key=value, not {pair!r}")
        name = key.replace("-", "_")
        if text in UNSET:
            layer.pop(name, None)
            continue
        try:
            layer[name] = Value(parse_setting(key, text), origin)
        except ConfigError as error:
            raise UsageError(str(error)) from None
    return layer


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Settings and options named ENGINECTL_KEY. Raises UsageError for a wrong value, or a name that is nearly a known
    one; a name that resembles none is somebody else's."""
    refuse_mistyped(environ)
    layer: Layer = {}
    for key in (*FIELDS, *OPTIONS):
        variable = PREFIX + key.upper()
        if text := environ.get(variable):
            layer[key] = Value(_check(key, text, variable), variable)
    return layer


def refuse_mistyped(environ: Mapping[str, str]) -> None:
    """Raises UsageError for a variable whose name is nearly one that is read."""
    known = [*(key.upper() for key in (*FIELDS, *OPTIONS)), *(name.removeprefix(PREFIX) for name in VARIABLES)]
    strange = [name for name in environ if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in known]
    known += _of_options(strange)
    for name in strange:
        word = name.removeprefix(PREFIX)
        if word in known:
            continue
        if near := nearest(word, known, likeness=MISTYPED):
            raise UsageError(f"the variable {name} means nothing; did you mean {PREFIX}{near}?", try_=[f"unset {name}"])


def _of_options(variables: Iterable[str]) -> list[str]:
    """Twins of single options, of the verbs that these names begin with: their modules are imported for it."""
    from enginectl.group import twins_of

    words = {name.removeprefix(PREFIX).partition("_")[0].lower() for name in variables}
    return [twin.removeprefix(PREFIX) for word in words & VERBS.keys() for twin in twins_of(VERBS[word])]


def file_layer(path: Path, name: str) -> Layer:
    """What one TOML file says for the engine `name`: [options] and [settings], then [engines.NAME] over them."""
    data = _read(path)
    layer: Layer = {}
    for table, known in (("options", tuple(OPTIONS)), ("settings", tuple(FIELDS))):
        layer |= _table(data.pop(table, {}), known, f"{path} [{table}]")
    engines = data.pop("engines", {})
    if data:
        raise UsageError(_unknown(next(iter(data)), ("options", "settings", "engines"), str(path)))
    if not isinstance(engines, dict):
        raise UsageError(f"{path}: engines must be tables, as in [engines.{name}]")
    for engine, table in engines.items():
        own = _table(table, (*OPTIONS, *FIELDS), f"{path} [engines.{engine}]")
        layer |= own if engine == name else {}
    return layer


def engine_names(path: Path) -> list[str]:
    """The engines that a file has tables for. Raises UsageError for a file that cannot be read."""
    engines = _read(path).get("engines", {})
    return list(engines) if isinstance(engines, dict) else []


def _table(table: object, known: tuple[str, ...], where: str) -> Layer:
    if not isinstance(table, dict):
        raise UsageError(f"{where} must be a table")
    layer: Layer = {}
    for key, value in table.items():
        if key not in known:
            raise UsageError(_unknown(key, known, where))
        layer[key] = Value(_check(key, value, where), where)
    return layer


def _check(key: str, value: object, where: str) -> object:
    """The typed value of a setting or an option, from text or from TOML."""
    try:
        if key in OPTIONS:
            return OPTIONS[key](value)
        if isinstance(value, str):
            return parse_setting(key, value)
        return msgspec.convert(value, FIELDS[key].type)
    except (ConfigError, msgspec.ValidationError, UsageError) as error:
        raise UsageError(f"{where}: {key} = {value!r}: {error}") from None


def _unknown(key: str, known: tuple[str, ...], where: str) -> str:
    from enginectl.verbs import nearest

    near = nearest(key, known)
    return f"{where}: unknown key {key!r}" + (f"; did you mean {near!r}?" if near else f"; known: {', '.join(known)}")


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}", cause=str(error)) from None


def project_file(start: Path | None = None) -> Path | None:
    """The nearest enginectl.toml upwards from here. It may name an interpreter to run, so one that somebody else owns
    or may write is refused."""
    try:
        here = (start or Path.cwd()).absolute()
    except FileNotFoundError:
        return None
    for folder in (here, *here.parents):
        path = folder / FILE_NAME
        try:
            info = path.stat()
        except OSError:
            continue
        _check_trusted(path, info)
        return path
    return None


def _check_trusted(path: Path, info: os.stat_result) -> None:
    """Raises UsageError."""
    if info.st_uid not in (os.geteuid(), 0) or info.st_mode & stat.S_IWOTH:
        raise UsageError(
            f"refusing {path}: it belongs to uid {info.st_uid} or others may write it",
            try_=[f"chown {os.geteuid()} {path}", f"chmod go-w {path}"],
        )


def user_file(environ: Mapping[str, str]) -> Path | None:
    """ENGINECTL_CONFIG (must exist, and is meant, whoever owns it), else enginectl/enginectl.toml in the user's config
    directory when it is there. Raises UsageError for one that somebody else owns or may write."""
    if given := environ.get(CONFIG_SETTING):
        return Path(given)
    base = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = Path(base) / "enginectl" / FILE_NAME
    if not (path.is_absolute() and path.is_file()):
        return None
    _check_trusted(path, path.stat())
    return path


def file_layers(name: str, environ: Mapping[str, str], start: Path | None = None) -> list[Layer]:
    """Project file, then user file."""
    user, project = user_file(environ), project_file(start)
    paths = [project] if project is not None else []
    if user is not None and user not in paths:
        paths.append(user)
    return [file_layer(path, name) for path in paths]


def resolve(layers: Iterable[Layer]) -> Layer:
    """The first layer that has a key wins."""
    result: Layer = {}
    for layer in layers:
        result = layer | result
    return result


def default_of(key: str) -> object:
    field = FIELDS[key]
    return None if field.default is msgspec.NODEFAULT else field.default


__all__ = [
    "OPTIONS",
    "Layer",
    "Value",
    "default_of",
    "engine_names",
    "environment_layer",
    "file_layer",
    "file_layers",
    "parse_restart",
    "parse_sets",
    "project_file",
    "resolve",
    "unknown_setting",
    "user_file",
]
