"""Arguments of a utility call: text from a command line becomes the positional list that the engine's table asks for.

Typed from `describe` (ArgInfo.type is a Python type as text) and checked before anything is sent. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from engine.reports import ArgInfo, UtilityInfo
from enginectl.errors import NoSuchUtility, UsageError
from enginectl.plain_types import in_words, value_in_words
from enginectl.verbs import nearest

Json = object


def find_utility(utilities: Sequence[UtilityInfo], name: str) -> UtilityInfo:
    """Raises NoSuchUtility that names the nearest one."""
    for info in utilities:
        if info.name == name:
            return info
    near = nearest(name, [info.name for info in utilities])
    raise NoSuchUtility(
        f"this engine has no utility {name!r}" + (f"; did you mean {near!r}?" if near else ""),
        try_=["enginectl call --list"],
    )


def signature(info: UtilityInfo) -> str:
    """`reset_prefix_cache [reset_running_requests: bool = false]`"""
    return f"{info.name} {arguments(info)}".rstrip()


def arguments(info: UtilityInfo, *, defaults: bool = True) -> str:
    """`<level: int> [tags: list[str] | None = null]`"""
    return " ".join(
        f"<{arg.name}: {arg.type}>"
        if arg.required
        else f"[{arg.name}: {arg.type}{f' = {_default(arg)}' if defaults else ''}]"
        for arg in info.args
        if arg.type != "Raw"
    )


def _default(arg: ArgInfo) -> str:
    return msgspec.json.encode(msgspec.msgpack.decode(arg.default)).decode()


def bind(info: UtilityInfo, words: Sequence[str], named: Sequence[str], given: Json = None) -> list[Raw]:
    """Positional words, then `--arg k=v`, or the decoded `--args-json` (a list or a map). Trailing defaults are left
    out. Raises UsageError naming the argument."""
    if given is not None:
        if words or named:
            raise UsageError("--args-json excludes other arguments")
        return _bind_json(info, given)
    if len(words) > len(info.args):
        raise UsageError(f"{info.name} takes at most {len(info.args)} arguments, got {len(words)}: {signature(info)}")
    values: dict[str, Json] = {arg.name: convert(info, arg, word) for arg, word in zip(info.args, words, strict=False)}
    for pair in named:
        key, equals, word = pair.partition("=")
        if not equals:
            raise UsageError(f"--arg wants key=value, not {pair!r}")
        arg = _find_arg(info, key)
        if arg.name in values:
            raise UsageError(f"{info.name}: argument {arg.name} is given twice")
        values[arg.name] = convert(info, arg, word)
    return _positional(info, values)


def _bind_json(info: UtilityInfo, given: Json) -> list[Raw]:
    if isinstance(given, list):
        if len(given) > len(info.args):
            raise UsageError(f"{info.name} takes at most {len(info.args)} arguments, got {len(given)}")
        pairs = list(zip(info.args, given, strict=False))
    elif isinstance(given, dict):
        pairs = [(_find_arg(info, str(key)), value) for key, value in given.items()]
    else:
        raise UsageError("--args-json wants a list or a map")
    for arg, value in pairs:
        _check_json(info, arg, value)
    return _positional(info, {arg.name: value for arg, value in pairs})


def _check_json(info: UtilityInfo, arg: ArgInfo, value: Json) -> None:
    """A value of JSON has a type already. Raises UsageError when it is another than the table's."""
    kinds = _kinds(arg)
    if arg.choices:
        fits = value in arg.choices or (value is None and "None" in kinds)
    else:
        fits = any(_is_a(value, kind) for kind in kinds)
    if not fits:
        raise _mistyped(info, arg, value_in_words(value))


def _is_a(value: Json, kind: str) -> bool:
    match kind:
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case "float":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "bool" | "str" | "None":
            return isinstance(value, {"bool": bool, "str": str, "None": type(None)}[kind])
        case _ if kind.startswith("list["):
            return isinstance(value, list) and all(_is_a(one, kind[5:-1]) for one in value)
        case _ if kind.startswith(("list", "tuple")):
            return isinstance(value, list)
        case _ if kind.startswith("dict"):
            return isinstance(value, dict)
        case _:
            return True  # a type this command does not know: the engine checks


def _kinds(arg: ArgInfo) -> list[str]:
    return [option.strip() for option in arg.type.split("|")]


def _mistyped(info: UtilityInfo, arg: ArgInfo, got: str) -> UsageError:
    wanted = f"one of {', '.join(arg.choices)}" if arg.choices else in_words(arg.type)
    return UsageError(f"{info.name}: {arg.name} must be {wanted}, not {got}", try_=[_describe(info)])


def _describe(info: UtilityInfo) -> str:
    return f"enginectl call --describe {info.name}"


def _find_arg(info: UtilityInfo, key: str) -> ArgInfo:
    name = key.replace("-", "_")
    for arg in info.args:
        if arg.name == name:
            return arg
    names = [arg.name for arg in info.args]
    near = nearest(name, names)
    hint = f"; did you mean {near!r}?" if near else f"; it takes {', '.join(names)}" if names else "; it takes none"
    raise UsageError(f"{info.name} has no argument {key!r}{hint}")


def _positional(info: UtilityInfo, values: dict[str, Json]) -> list[Raw]:
    packed: list[Raw] = []
    last = max((i for i, arg in enumerate(info.args) if arg.name in values), default=-1)
    for i, arg in enumerate(info.args):
        if arg.name in values:
            packed.append(encode_value(values[arg.name], f"{info.name}: {arg.name}"))
        elif arg.required:
            raise UsageError(f"{info.name}: argument {arg.name} is missing: {signature(info)}")
        elif i < last:
            packed.append(arg.default)
    return packed


def encode_value(value: Json, what: str) -> Raw:
    """Raises UsageError for what no message can carry."""
    try:
        return Raw(msgspec.msgpack.encode(value))
    except OverflowError:
        raise UsageError(f"{what}: whole numbers have at most 64 bits") from None
    except RecursionError:
        raise UsageError(f"{what}: lists and maps are nested too deep") from None
    except UnicodeError:
        raise UsageError(f"{what}: the text is not UTF-8") from None


def convert(info: UtilityInfo, arg: ArgInfo, word: str) -> Json:
    """One word as the type the table names. Raises UsageError."""
    options = _kinds(arg)
    if "None" in options and word.lower() in ("null", "none"):
        return None
    if arg.choices:
        if word not in arg.choices:
            near = nearest(word, arg.choices)
            raise UsageError(
                f"{info.name}: {arg.name} is one of {', '.join(arg.choices)}, not {word!r}"
                + (f"; did you mean {near!r}?" if near else "")
            )
        return word
    kind = next((option for option in options if option != "None"), "Raw")
    try:
        return _typed(kind, word)
    except (ValueError, RecursionError):
        raise _mistyped(info, arg, value_in_words(word)) from None


def _typed(kind: str, word: str) -> Json:
    """Raises ValueError."""
    if kind == "str":
        return word
    if kind == "bool":
        truth = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if word.lower() not in truth:
            raise ValueError
        return truth[word.lower()]
    if kind == "int":
        return int(word, 0)
    if kind == "float":
        return float(word)
    if kind == "list[str]" and not word.startswith("["):
        return word.split(",")
    if kind.startswith(("list", "dict", "tuple")):
        return _json(word)
    return loose(word)


def _json(word: str) -> Json:
    value: Json = msgspec.json.decode(word)
    return value


def loose(word: str) -> Json:
    """JSON where it is JSON, else text: for an engine that does not describe its utilities."""
    try:
        return _json(word)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return word
