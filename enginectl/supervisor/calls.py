"""Utility calls from our own seat: each gets one answer, its deadline, or the engine's death.

Owns the call ids of the seat. A late answer is discarded."""

from __future__ import annotations

import itertools
from typing import TypeVar

import msgspec
from msgspec import Raw

from engine.messages import NIL, UtilityCall, UtilityOutput
from enginectl.envelope import pack
from enginectl.errors import CallFailed, CtlError, Deadline
from enginectl.supervisor.loop import DeadlinePassed, Future, Loop
from enginectl.supervisor.relay import Relay

T = TypeVar("T")


class Calls:
    def __init__(self, loop: Loop, relay: Relay) -> None:
        self._loop = loop
        self._relay = relay
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[UtilityOutput]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def raw(self, method: str, args: list[Raw], timeout_s: float) -> Raw:
        """The encoded result. Raises CallFailed, Deadline, EngineDied."""
        call_id = next(self._ids)
        future: Future[UtilityOutput] = Future()
        self._waiting[call_id] = future
        try:
            self._relay.utility(UtilityCall(self._relay.own.index, call_id, method, args))
            output = await self._loop.within(future, timeout_s)
        except DeadlinePassed:
            raise Deadline(f"{method} did not answer in {timeout_s:.1f} s") from None
        finally:
            self._waiting.pop(call_id, None)
        if output.failure_message is not None:
            raise CallFailed(output.failure_message)
        return output.result.value if output.result is not None else NIL

    async def get(self, method: str, kind: type[T], *args: object, timeout_s: float = 2.0) -> T:
        """The typed result of a call of our own."""
        value = await self.raw(method, [pack(arg) for arg in args], timeout_s)
        try:
            return msgspec.msgpack.decode(value, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise CallFailed(f"{method}: its answer cannot be read", cause=str(error)) from None

    def on_answer(self, output: UtilityOutput) -> None:
        future = self._waiting.get(output.call_id)
        if future is not None:
            future.set_result(output)

    def fail_all(self, error: CtlError) -> None:
        for future in list(self._waiting.values()):
            future.set_error(error)
