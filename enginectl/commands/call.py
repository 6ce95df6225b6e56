"""`enginectl call`: a utility of the engine, typed and checked before it is sent; its result as JSON on stdout."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer
from msgspec import Raw

from engine.reports import UtilityInfo
from enginectl import text
from enginectl.client import Engine
from enginectl.context import connect
from enginectl.control_verbs import CallArgs, CallResult, UtilitiesArgs, UtilityTable
from enginectl.errors import NoSuchUtility, Refused, UsageError
from enginectl.options import EngineOption, Format, OutputOption, YesOption, duration
from enginectl.output import out, plain
from enginectl.patience import Patience
from enginectl.utility_args import arguments, bind, encode_value, find_utility, loose, signature

EXAMPLES = ("enginectl call --list", "enginectl call reset_prefix_cache --arg reset_running_requests=true")
MAX_JSON_BYTES = 16 * 1024**2


def command(
    utility: Annotated[str | None, typer.Argument(metavar="UTILITY", show_default=False, help="See --list.")] = None,
    args: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", show_default=False, help="Its arguments, in order.")
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="K=V", show_default=False, help="An argument by name. May be given again."),
    ] = None,
    args_json: Annotated[
        str | None,
        typer.Option(
            "--args-json",
            metavar="J|@FILE|-",
            show_default=False,
            help="All arguments as a JSON list or map; @FILE or - (stdin).",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            parser=duration,
            metavar="DURATION",
            envvar="ENGINECTL_TIMEOUT",
            show_default="30s",
            help="How long I wait for the answer.",
        ),
    ] = 30.0,
    list_: Annotated[bool, typer.Option("--list", help="List the utilities of this engine.")] = False,
    describe: Annotated[bool, typer.Option("--describe", help="Describe UTILITY instead of calling it.")] = False,
    yes: YesOption = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Call a utility of the engine. The result is JSON on stdout, the time it took on stderr."""
    patience = Patience(timeout)
    with connect(engine) as connected:
        table = _table(connected, patience)
        if list_ or (utility is None and not describe):
            return _list(connected.name, table)
        if utility is None:
            raise UsageError("--describe wants a utility", try_=["enginectl call --list"])
        if describe:
            return _describe(find_utility(table or [], utility))
        packed = _packed(table, utility, args or [], arg or [], args_json)
        _ask(connected, table, utility, packed, yes, patience)
        return _call(connected, utility, packed, patience)


def _table(engine: Engine, patience: Patience) -> list[UtilityInfo] | None:
    """None: this engine does not describe itself. Its supervisor answers, so a stalled one costs no time."""
    args = UtilitiesArgs(timeout_s=patience.left_s)
    return engine.control.request("utilities", args, UtilityTable, timeout_s=patience.wait_s).items


def _list(name: str, table: list[UtilityInfo] | None) -> None:
    if table is None:
        raise NoSuchUtility(f"engine {name!r} does not list its utilities", cause="it has no utility `describe`")
    items = sorted(table, key=lambda info: info.name)
    out.document("UtilityList", {"items": [_plain_info(info) for info in items]})
    rows = [[info.name, arguments(info, defaults=False), info.effect, info.lane, info.summary] for info in items]
    headers = ("UTILITY", "ARGUMENTS", "EFFECT", "LANE", "WHAT IT DOES")
    out.text(
        *text.table(headers, rows, left=(0, 1, 2, 3, 4), width=out.table_width, drop=(3, 2)),
    )


def _plain_info(info: UtilityInfo) -> dict[str, object]:
    return plain(info)


def _describe(info: UtilityInfo) -> None:
    out.document("Utility", info)
    rows = [(arg.name, f"{arg.type}{'' if arg.required else ', may be left out'}") for arg in info.args]
    out.text(
        signature(info),
        f"  {info.summary}",
        f"  effect {info.effect}, lane {info.lane}, in phases {', '.join(info.phases)}",
        *text.pairs(rows),
    )


def _packed(
    table: list[UtilityInfo] | None, utility: str, words: list[str], named: list[str], args_json: str | None
) -> list[Raw]:
    given = None if args_json is None else _read_json(args_json)
    if table is not None:
        return bind(find_utility(table, utility), words, named, given)
    if named or isinstance(given, dict):
        raise UsageError("this engine does not describe its arguments: give them in order")
    values = given if isinstance(given, list) else [loose(word) for word in words]
    return [encode_value(value, f"argument {i + 1}") for i, value in enumerate(values)]


def _read_json(source: str) -> object:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(MAX_JSON_BYTES)
        elif source.startswith("@"):
            with open(source[1:], "rb") as file:
                data = file.read(MAX_JSON_BYTES)
        else:
            data = source.encode()
        value: object = msgspec.json.decode(data)
        return value
    except OSError as error:
        raise UsageError(f"--args-json: cannot read {source[1:]!r}", cause=error.strerror or str(error)) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UsageError("--args-json: not JSON", cause=str(error)) from None


DISTURBING = {
    "reset_prefix_cache": "preempts",
    "pause_scheduler": "holds up or aborts",
    "sleep": "aborts",
    "shutdown": "ends",
    "abort_requests": "aborts",
}
"""What these do to requests in flight; asked about when there are any."""


def _ask(
    engine: Engine, table: list[UtilityInfo] | None, utility: str, packed: list[Raw], yes: bool, patience: Patience
) -> None:
    """Unsafe utilities always ask; those that disturb requests ask when there are any."""
    retry = f"enginectl call -e {engine.name} {utility} ... --yes"
    info = next((info for info in table or [] if info.name == utility), None)
    if info is not None and info.effect == "unsafe":
        _check_unsafe(engine, info)
        with patience.stopped():
            out.confirm(f"{utility} is unsafe: {info.summary}", yes=yes, retry=retry)
    if utility not in DISTURBING or yes:
        return
    if utility == "reset_prefix_cache" and not (packed and msgspec.msgpack.decode(packed[0])):
        return
    stats = engine.status().stats
    running = stats.running + stats.waiting if stats else 0
    if running:
        what = f"{utility} {DISTURBING[utility]} {text.count(running, 'running request')}"
        with patience.stopped():
            out.confirm(what, yes=yes, retry=retry)


def _check_unsafe(engine: Engine, info: UtilityInfo) -> None:
    """No `--yes` helps where the engine itself would refuse. Raises Refused."""
    if not engine.status().asked.get("allow_unsafe_calls"):
        name = engine.name
        raise Refused(
            f"{info.name} is unsafe, and engine {name!r} was started without allow_unsafe_calls",
            cause=info.summary,
            try_=[f"enginectl drain {name} && enginectl start {name} --set allow_unsafe_calls=true"],
        )


def _call(engine: Engine, utility: str, packed: list[Raw], patience: Patience) -> None:
    request = CallArgs(utility=utility, args=packed, timeout_s=patience.left_s)
    result = engine.control.request("call", request, CallResult, timeout_s=patience.wait_s)
    value = msgspec.msgpack.decode(result.value, strict=False)
    out.document(
        "CallResult",
        {"name": engine.name, "utility": utility, "value": value, "took_ms": result.took_ms, "step": result.step},
    )
    if not out.json:
        shown = msgspec.json.encode(value, enc_hook=str)
        out.text(msgspec.json.format(shown, indent=2 if len(shown) > 100 else 0).decode())
        step = f", step {result.step:,}" if result.step else ""
        out.say(f"{text.milliseconds(result.took_ms)}{step}")
