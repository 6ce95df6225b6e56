"""What the three threads of an engine hand each other. Plain values: whoever takes one out owns it.

input_queue   (engine-in, signals, executor -> main loop)   carries ToLoop
aborts_queue  (engine-in -> main loop, early lane)          carries Abort
output_queue  (main loop -> engine-out)                     carries FromLoop"""

from __future__ import annotations

from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeAlias

from engine.messages import EngineCoreOutputs, UtilityCall
from engine.scheduler.request import Request


@dataclass(slots=True)
class Add:
    """A prepared request that nobody else holds. `seq` counts admissions: an early abort hits only smaller ones."""

    request: Request
    seq: int
    abort_immediately: bool = False
    """Admitted and aborted at once: its client only wants the final output."""


@dataclass(slots=True)
class Refuse:
    """A request that failed in preparation: the loop gives it its one final output, finish_reason ERROR."""

    request_id: str
    client_index: int
    text: str


@dataclass(slots=True)
class Abort:
    """From a client. Hits only requests with a smaller seq; travels in both queues."""

    request_ids: list[str]
    seq: int


@dataclass(slots=True)
class Call:
    call: UtilityCall


@dataclass(slots=True)
class RefuseCall:
    """A utility call that could not be read beyond its id: the loop answers it with this text."""

    call_id: int
    client_index: int
    text: str


@dataclass(slots=True)
class ClientGone:
    """engine-out: this client leaves too much unread; its requests are to be aborted."""

    client_index: int


@dataclass(slots=True)
class OutputsLost:
    """engine-out: a client reads again; these of its requests lost outputs meanwhile and are to end."""

    request_ids: list[str]


@dataclass(slots=True)
class ExecutorFailed:
    cause: str


@dataclass(slots=True)
class ThreadDied:
    """An IO thread ended with an exception: the engine dies with last words."""

    name: str
    cause: str


@dataclass(slots=True)
class Wakeup:
    """A flag was set elsewhere (signal, death pipe); look at it."""


ToLoop: TypeAlias = (
    Add | Refuse | Abort | Call | RefuseCall | ClientGone | OutputsLost | ExecutorFailed | ThreadDied | Wakeup
)


@dataclass(slots=True)
class Emit:
    """One message for one client. client_index -1: the coordinator."""

    client_index: int
    outputs: EngineCoreOutputs


@dataclass(slots=True)
class LastWords:
    """After everything queued before it: ENGINE_CORE_DEAD to every client, then engine-out ends."""


FromLoop: TypeAlias = Emit | LastWords

InputQueue: TypeAlias = "SimpleQueue[ToLoop]"
AbortsQueue: TypeAlias = "SimpleQueue[Abort]"
OutputQueue: TypeAlias = "SimpleQueue[FromLoop]"
