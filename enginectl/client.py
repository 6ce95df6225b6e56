"""Attach to a running engine from Python, through its supervisor's control socket.

Enters: an engine's name. Leaves: views, tokens, results, or one of enginectl.errors. Owns its connection; closing it
leaves the engine as it is, except that a generation nobody reads any more is aborted."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from engine.messages import SamplingParams
from enginectl.channel import ControlClient, ControlStream, StatsStream
from enginectl.control import DrainProgress, EngineView, EventView, RequestView
from enginectl.control_verbs import (
    AbortArgs,
    AbortOutcome,
    AbortResult,
    CallArgs,
    CallResult,
    CordonArgs,
    DrainArgs,
    DrainEnd,
    EventList,
    EventsArgs,
    GenerateArgs,
    GenerateChunk,
    GenerateEnd,
    RequestList,
    RequestsArgs,
    StatusArgs,
    StopArgs,
    StopStage,
    WatchArgs,
)
from enginectl.envelope import pack
from enginectl.errors import CtlError, NotRunning, Unreachable
from enginectl.identity import is_stopped
from enginectl.rundir import EngineEntry

__all__ = ["ControlClient", "ControlStream", "Engine", "Json", "StatsStream", "connect", "open_control", "open_stats"]

T = TypeVar("T")
E = TypeVar("E")
Json: TypeAlias = "bool | int | float | str | bytes | list[Json] | dict[str, Json] | None"
"""What a utility call carries both ways."""


LAST_WORDS_S = 5.0
"""How long a supervisor whose engine has ended gets to end itself."""
BACK_S = 2.5
"""In how long a supervisor that turns has put back a socket that somebody removed."""


def open_control(name: str, *, is_patient: bool = True) -> ControlClient:
    """A connection to the supervisor of NAME. Raises NoSuchEngine, NotRunning or Unreachable.
    is_patient: a supervisor gets a few seconds to end, or to put its socket back; who asks again anyway waits none."""
    began = time.monotonic()
    while True:
        entry = EngineEntry.find(name)
        if entry.liveness != "running":
            raise not_running(entry)
        try:
            return ControlClient(entry.control_socket, name=name, supervisor=entry.supervisor)
        except Unreachable:
            patience_s = LAST_WORDS_S if entry.is_over else BACK_S
            if not is_patient or is_stopped(entry.supervisor) or time.monotonic() - began > patience_s:
                raise
        time.sleep(0.05)


def not_running(entry: EngineEntry) -> CtlError:
    """The error for an engine without a supervisor, with how it ended."""
    view = entry.view()
    ended = view.last_exit
    how = f"signal {ended.signal}" if ended and ended.signal else f"exit {ended.code}" if ended else view.reason
    return NotRunning(
        f"engine {entry.name!r} is not running ({view.state}{', ' + how if how else ''})",
        cause=ended.cause if ended else "",
        try_=[f"enginectl start {entry.name}", f"enginectl logs {entry.name}"],
    )


def open_stats(name: str) -> StatsStream:
    """A reader of stats.sock; it waits for a supervisor that is not there. Raises NoSuchEngine."""
    return StatsStream(EngineEntry.find(name).stats_socket)


def connect(name: str = "default") -> Engine:
    """Raises NoSuchEngine, NotRunning or Unreachable."""
    return Engine(open_control(name))


class Engine:
    """A running engine. One thread at a time; streams have connections of their own."""

    def __init__(self, control: ControlClient) -> None:
        self.control = control
        self.name = control.name

    def status(self) -> EngineView:
        return self.control.request("status", StatusArgs(), EngineView)

    def watch(self, interval_s: float = 1.0) -> ControlStream[EngineView, EngineView]:
        """One view now and one at each change, until the supervisor ends."""
        return self.control.stream("watch", WatchArgs(interval_s=interval_s), EngineView, EngineView)

    def requests(self, limit: int = 1000) -> list[RequestView]:
        return self.control.request("requests", RequestsArgs(limit=limit), RequestList).items

    def events(self, limit: int = 100, since_seq: int = 0) -> list[EventView]:
        return self.control.request("events", EventsArgs(limit=limit, since_seq=since_seq), EventList).items

    def call(self, utility: str, *args: object, timeout_s: float = 30.0) -> Json:
        """A utility call with positional arguments. Raises CallFailed, NoSuchUtility, Deadline, EngineDied."""
        packed = [Raw(pack(value)) for value in args]
        result = self.control.request(
            "call", CallArgs(utility=utility, args=packed, timeout_s=timeout_s), CallResult, timeout_s=timeout_s + 2.0
        )
        value: Json = msgspec.msgpack.decode(result.value)
        return value

    def abort(self, ids: str | list[str], timeout_s: float = 10.0) -> list[AbortOutcome]:
        """Returns when they are gone. Ids: the engine's, the caller's, or a unique prefix of either."""
        asked = [ids] if isinstance(ids, str) else ids
        args = AbortArgs(ids=asked, timeout_s=timeout_s)
        return self.control.request("abort", args, AbortResult, timeout_s=timeout_s + 5.0).items

    def generate(
        self,
        prompt_token_ids: list[int],
        params: SamplingParams | None = None,
        *,
        request_id: str = "",
        priority: int = 0,
        timeout_s: float | None = None,
    ) -> ControlStream[GenerateChunk, GenerateEnd]:
        """Chunks as they come; `.end` afterwards says why it finished. Leaving the iteration early aborts it."""
        args = GenerateArgs(
            request_id=request_id,
            prompt_token_ids=prompt_token_ids,
            sampling_params=params or SamplingParams(),
            priority=priority,
        )
        return self.control.stream("generate", args, GenerateChunk, GenerateEnd, timeout_s)

    def cordon(self) -> EngineView:
        return self.control.request("cordon", CordonArgs(), EngineView)

    def uncordon(self) -> EngineView:
        """Also cancels a drain."""
        return self.control.request("uncordon", CordonArgs(), EngineView)

    def drain_stream(self, grace_s: float = 300.0, *, stop: bool = True) -> ControlStream[DrainProgress, DrainEnd]:
        return self.control.stream("drain", DrainArgs(grace_s=grace_s, stop=stop), DrainProgress, DrainEnd)

    def drain(self, grace_s: float = 300.0, *, stop: bool = True) -> DrainEnd | None:
        """Refuses new work, waits for what runs, and stops the engine unless stop is False."""
        return _exhaust(self.drain_stream(grace_s, stop=stop))

    def stop_stream(self, grace_s: float = 10.0) -> ControlStream[StopStage, StopStage]:
        return self.control.stream("stop", StopArgs(grace_s=grace_s), StopStage, StopStage)

    def stop(self, grace_s: float = 10.0) -> None:
        """Returns when the engine's whole process group is gone."""
        _exhaust(self.stop_stream(grace_s))

    def close(self) -> None:
        self.control.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _exhaust(stream: ControlStream[T, E]) -> E | None:
    with contextlib.closing(stream):
        for _ in stream:
            pass
    return stream.end
