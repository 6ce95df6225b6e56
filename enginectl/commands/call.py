"""`enginectl call`: a utility of the engine, typed and checked before it is sent; its result as JSON on stdout."""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec
import typer
from msgspec import Raw

from engine.reports import EngineDescription, UtilityInfo
from enginectl import text
from enginectl.client import Engine
from enginectl.context import connect
from enginectl.control import CallArgs, CallResult
from enginectl.errors import CallFailed, NoSuchUtility, UsageError
from enginectl.options import EngineOption, Format, OutputOption, YesOption, duration
from enginectl.output import out, plain
from enginectl.utility_args import bind, find_utility, loose, signature

EXAMPLES = ("enginectl call --list", "enginectl call reset_prefix_cache --arg reset_running_requests=true")
REPLY_SLACK_S = 3.0
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
    with connect(engine) as connected:
        table = _table(connected)
        if list_ or (utility is None and not describe):
            return _list(connected.name, table)
        if utility is None:
            raise UsageError("--describe wants a utility", try_=["enginectl call --list"])
        if describe:
            return _describe(find_utility(table or [], utility))
        packed = _packed(table, utility, args or [], arg or [], args_json)
        _ask(connected, table, utility, packed, yes)
        return _call(connected, utility, packed, timeout)


def _table(engine: Engine) -> list[UtilityInfo] | None:
    """None: this engine does not describe itself."""
    try:
        result = engine.control.request("call", CallArgs(utility="describe", timeout_s=5.0), CallResult, timeout_s=8.0)
        return msgspec.msgpack.decode(result.value, type=EngineDescription).utilities
    except (CallFailed, NoSuchUtility, msgspec.MsgspecError):
        return None


def _list(name: str, table: list[UtilityInfo] | None) -> None:
    if table is None:
        raise NoSuchUtility(f"engine {name!r} does not list its utilities", cause="it has no utility `describe`")
    items = sorted(table, key=lambda info: info.name)
    out.document("UtilityList", {"items": [_plain_info(info) for info in items]})
    rows = [[info.name, info.effect, info.lane, info.summary] for info in items]
    out.text(
        *text.table(
            ("UTILITY", "EFFECT", "LANE", "WHAT IT DOES"), rows, left=(0, 1, 2, 3), width=out.table_width, shrink=3
        )
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
    return [Raw(msgspec.msgpack.encode(value)) for value in values]


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
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError("--args-json: not JSON", cause=str(error)) from None


DISTURBING = {
    "reset_prefix_cache": "preempts",
    "pause_scheduler": "holds up or aborts",
    "sleep": "aborts",
    "shutdown": "ends",
    "abort_requests": "aborts",
}
"""What these do to requests in flight; asked about when there are any."""


def _ask(engine: Engine, table: list[UtilityInfo] | None, utility: str, packed: list[Raw], yes: bool) -> None:
    """Unsafe utilities always ask; those that disturb requests ask when there are any."""
    retry = f"enginectl call -e {engine.name} {utility} ... --yes"
    info = next((info for info in table or [] if info.name == utility), None)
    if info is not None and info.effect == "unsafe":
        out.confirm(f"{utility} is unsafe: {info.summary}", yes=yes, retry=retry)
    if utility not in DISTURBING or yes:
        return
    if utility == "reset_prefix_cache" and not (packed and msgspec.msgpack.decode(packed[0])):
        return
    stats = engine.status().stats
    running = stats.running + stats.waiting if stats else 0
    if running:
        out.confirm(f"{utility} {DISTURBING[utility]} {text.count(running, 'running request')}", yes=yes, retry=retry)


def _call(engine: Engine, utility: str, packed: list[Raw], timeout_s: float) -> None:
    request = CallArgs(utility=utility, args=packed, timeout_s=timeout_s)
    result = engine.control.request("call", request, CallResult, timeout_s=timeout_s + REPLY_SLACK_S)
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
