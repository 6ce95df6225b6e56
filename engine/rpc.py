"""Utility calls: a literal table of what may be called, typed arguments, one answer for each call.

`engine.utilities` fills the table. Lane loop runs in the main thread between steps; lane instant runs in engine-in and
reads only what the loop has published. Names are matched exactly: nothing is ever looked up on an object."""

from __future__ import annotations

import difflib
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw

from engine.errors import EngineDeadError, UtilityError
from engine.lifecycle import ANY, Phase
from engine.messages import NIL, EngineCoreOutputs, UtilityCall, UtilityOutput, UtilityResult
from engine.reports import ArgInfo, UtilityInfo

if TYPE_CHECKING:
    from engine.proc import EngineCoreProc

logger = logging.getLogger("engine")
MAX_FAILURE_CHARS = 4000
SHUTTING_DOWN = "Server shutting down"
Function = Callable[..., object]


class Lane(Enum):
    LOOP = "loop"
    INSTANT = "instant"


@dataclass(frozen=True, slots=True)
class Utility:
    """One row of the table."""

    name: str
    function: Function
    arg_names: tuple[str, ...]
    arg_types: tuple[Any, ...]
    defaults: tuple[object, ...]
    """For the last len(defaults) arguments."""
    lane: Lane
    phases: frozenset[Phase]
    effect: str
    summary: str

    @property
    def num_required(self) -> int:
        return len(self.arg_names) - len(self.defaults)

    def decode_args(self, raw: list[Raw]) -> list[object]:
        """Typed arguments, defaults filled in. Raises UtilityError that names the argument."""
        if not self.num_required <= len(raw) <= len(self.arg_names):
            wanted = f"{self.num_required} to {len(self.arg_names)}" if self.defaults else str(self.num_required)
            raise UtilityError(f"{self.name} takes {wanted} arguments ({', '.join(self.arg_names)}), got {len(raw)}")
        decoded: list[object] = []
        for name, kind, value in zip(self.arg_names, self.arg_types, raw, strict=False):
            try:
                decoded.append(msgspec.msgpack.decode(value, type=kind))
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise UtilityError(f"{self.name}: argument {name}: {error}") from None
        return decoded + list(self.defaults[len(decoded) - self.num_required :])

    def info(self) -> UtilityInfo:
        args = []
        for place, (name, kind) in enumerate(zip(self.arg_names, self.arg_types, strict=True)):
            required = place < self.num_required
            default = NIL if required else Raw(msgspec.msgpack.encode(self.defaults[place - self.num_required]))
            args.append(
                ArgInfo(name=name, type=_type_name(kind), default=default, required=required, choices=_choices(kind))
            )
        return UtilityInfo(
            name=self.name,
            args=args,
            lane=self.lane.value,
            phases=sorted(p.value for p in self.phases),
            effect=self.effect,
            summary=self.summary,
        )


UTILITIES: dict[str, Utility] = {}


def utility(
    *, lane: Lane = Lane.LOOP, phases: frozenset[Phase] = ANY, effect: Literal["reads", "changes", "unsafe"] = "reads"
) -> Callable[[Function], Function]:
    """Registers a function under its own name. Its first argument is the engine; the others need types."""

    def register(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        hints = get_type_hints(function)
        UTILITIES[function.__name__] = Utility(
            name=function.__name__,
            function=function,
            arg_names=tuple(p.name for p in parameters),
            arg_types=tuple(hints[p.name] for p in parameters),
            defaults=tuple(p.default for p in parameters if p.default is not inspect.Parameter.empty),
            lane=lane,
            phases=phases,
            effect=effect,
            summary=_first_line(function.__doc__),
        )
        return function

    return register


def find(name: str) -> Utility:
    """Raises UtilityError that names the method and the nearest ones."""
    found = UTILITIES.get(name)
    if found is None:
        shown = name if len(name) <= 80 else name[:77] + "..."
        near = difflib.get_close_matches(name[:80], UTILITIES, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(sorted(UTILITIES))}"
        raise UtilityError(f"{shown!r} is not a utility of this engine; {hint}")
    return found


def answer(engine: EngineCoreProc, call: UtilityCall) -> None:
    """Lane loop: runs the call and answers it, now or when its Future completes. Main thread only."""
    try:
        result = _run(engine, call, find(call.method))
    except UtilityError as error:
        output = UtilityOutput(call.call_id, _cut(str(error)))
    else:
        if isinstance(result, Future):
            result.add_done_callback(lambda done: _answer_future(engine, call, done))
            return
        output = _encode(call, result)
    engine.publish()
    engine.emit_utility(call.client_index, output)


def answer_instantly(engine: EngineCoreProc, call: UtilityCall) -> EngineCoreOutputs | None:
    """Lane instant: the answer, or None when the call belongs into the loop. Thread engine-in."""
    found = UTILITIES.get(call.method)
    if found is None or found.lane is not Lane.INSTANT:
        return None
    try:
        result = _run(engine, call, found)
        if result is NOT_HERE:
            return None
        output = _encode(call, result)
    except UtilityError as error:
        output = UtilityOutput(call.call_id, _cut(str(error)))
    return EngineCoreOutputs(engine_index=engine.engine_index, utility_output=output)


NOT_HERE = object()
"""What an instant utility returns when the published state is too old: the call goes to the loop instead."""


def _run(engine: EngineCoreProc, call: UtilityCall, found: Utility) -> object:
    phase = engine.lifecycle.phase
    if phase not in found.phases:
        reason = SHUTTING_DOWN if phase.is_shutting_down else f"the engine is {phase.value}"
        raise UtilityError(reason if phase.is_shutting_down else f"{call.method} is not possible now: {reason}")
    if found.effect == "unsafe" and not engine.config.allow_unsafe_calls:
        raise UtilityError(f"{call.method} needs an engine that was started with allow_unsafe_calls")
    args = found.decode_args(call.args)
    try:
        return found.function(engine, *args)
    except (UtilityError, EngineDeadError):
        raise
    except Exception as error:
        logger.exception("utility %s failed", call.method)
        raise UtilityError(f"{call.method} failed: {type(error).__name__}: {error}") from error


def _answer_future(engine: EngineCoreProc, call: UtilityCall, done: Future[object]) -> None:
    """Main thread only: nobody but engine.deferred completes one."""
    if done.cancelled():
        output = UtilityOutput(call.call_id, f"{call.method} was cancelled: {SHUTTING_DOWN}")
    elif (error := done.exception()) is not None:
        kind = "was not done" if isinstance(error, UtilityError) else f"failed: {type(error).__name__}"
        output = UtilityOutput(call.call_id, _cut(f"{call.method} {kind}: {error}"))
    else:
        try:
            output = _encode(call, done.result())
        except UtilityError as unencodable:
            output = UtilityOutput(call.call_id, _cut(str(unencodable)))
    engine.publish()
    engine.emit_utility(call.client_index, output)


def _encode(call: UtilityCall, value: object) -> UtilityOutput:
    """Here and not in engine-out: what cannot be encoded is this call's failure, nobody else's."""
    try:
        encoded = msgspec.msgpack.encode(value)
    except Exception as error:
        text = f"{call.method} returned {type(value).__name__}, which cannot be sent: {error}"
        return UtilityOutput(call.call_id, _cut(text))
    return UtilityOutput(call.call_id, None, UtilityResult(NIL, Raw(encoded)))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_FAILURE_CHARS else text[: MAX_FAILURE_CHARS - 20] + " ... (cut)"


def _choices(kind: Any) -> list[str]:
    return [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []


def _type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(str(choice) for choice in get_args(kind))
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)


def _first_line(doc: str | None) -> str:
    """Empty under -OO, which drops docstrings."""
    return doc.strip().splitlines()[0] if doc else ""
