"""What one client that fell behind was not told: tokens and ends of requests, answers to calls.

Enters: messages that were dropped for it, and those that follow. Leaves: what is said once it reads again: each request
still gets exactly one final output and each call one answer, and none goes on with a gap. Owned by engine-out."""

from __future__ import annotations

import time
from typing import TypeVar

import msgspec

from engine.codec import utility_failure
from engine.messages import EngineCoreOutput, EngineCoreOutputs, FinishReason

TEXT = "outputs were dropped: this client left more unread than its byte budget"
Id = TypeVar("Id", str, int)
MOST_REMEMBERED = 100_000
"""Ends and calls each. Who drops more than so many without reading once does not wait for the first of them."""


class Losses:
    def __init__(self) -> None:
        self.cut: set[str] = set()
        """Requests that lost tokens and have not ended."""
        self._unreported: set[str] = set()
        self._ended: dict[str, None] = {}
        self._calls: dict[int, None] = {}

    @property
    def is_due(self) -> bool:
        """There is something to tell as soon as the client has caught up."""
        return bool(self._ended or self._calls or self._unreported)

    def note(self, outputs: EngineCoreOutputs) -> None:
        """A message that is not sent."""
        for output in outputs.outputs:
            if output.finished:
                self.cut.discard(output.request_id)
                _remember(self._ended, output.request_id)
            else:
                self.cut.add(output.request_id)
                self._unreported.add(output.request_id)
        if outputs.utility_output is not None:
            _remember(self._calls, outputs.utility_output.call_id)

    def without_the_cut(self, outputs: EngineCoreOutputs) -> EngineCoreOutputs | None:
        """What may be sent of a message: of requests that lost tokens only their end, as an error. None: nothing."""
        kept = []
        for output in outputs.outputs:
            if output.request_id not in self.cut:
                kept.append(output)
            elif output.finished:
                self.cut.discard(output.request_id)
                kept.append(_error(output.request_id))
        if not kept and outputs.scheduler_stats is None and outputs.utility_output is None:
            return None
        return msgspec.structs.replace(outputs, outputs=kept)

    def take_told_late(self, engine_index: int) -> list[EngineCoreOutputs]:
        """The ends and answers that are due, once."""
        ended, self._ended = self._ended, {}
        calls, self._calls = self._calls, {}
        now = time.monotonic()
        ends = [EngineCoreOutputs(engine_index, [_error(request_id) for request_id in ended], None, now)]
        answers = [EngineCoreOutputs(engine_index, [], None, now, utility_failure(call, TEXT)) for call in calls]
        return (ends if ended else []) + answers

    def take_unreported(self) -> list[str]:
        """Of the cut ones those that the loop has not been asked to end, once."""
        found, self._unreported = self._unreported & self.cut, set()
        return list(found)


def _error(request_id: str) -> EngineCoreOutput:
    return EngineCoreOutput(request_id, [], finish_reason=FinishReason.ERROR, stop_reason=TEXT)


def _remember(known: dict[Id, None], id_: Id) -> None:
    known[id_] = None
    if len(known) > MOST_REMEMBERED:
        del known[next(iter(known))]
