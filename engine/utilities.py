"""The utilities of this engine: everything that may be called over the wire, and nothing else.

Names and arguments that frontends know are those of the protocol. What makes no sense here answers as a frontend
expects, or refuses with the reason."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from concurrent.futures import Future
from typing import TYPE_CHECKING, Literal

from msgspec import Raw

from engine.errors import UtilityError
from engine.lifecycle import ANY, LIVE, LIVE_OR_DRAINING, Event, Phase
from engine.messages import ABORTED_BY_OPERATOR, NIL, FinishReason
from engine.reports import EngineDescription, EngineStats, RequestTable
from engine.rpc import NOT_HERE, Lane, utility
from engine.views import current_stats, publish_table
from engine.views import describe as describe_engine

if TYPE_CHECKING:
    from engine.proc import EngineCoreProc
else:
    EngineCoreProc = object

PauseMode = Literal["abort", "wait", "keep"]
MAX_TABLE_AGE_S = 0.25
STUCK_S = 1.0

# ---------------------------------------------------------------- looking: lane instant


@utility(lane=Lane.INSTANT)
def describe(engine: EngineCoreProc) -> EngineDescription:
    """What this engine is: model, limits, what was asked for, and this table."""
    return describe_engine(engine)


@utility(lane=Lane.INSTANT)
def stats(engine: EngineCoreProc) -> EngineStats:
    """Counters since start and the state after the last step."""
    return current_stats(engine)


@utility(lane=Lane.INSTANT)
def requests(engine: EngineCoreProc, limit: int = 1000) -> object:
    """The requests in flight, oldest first, without their text."""
    published, now = engine.published, time.monotonic()
    if threading.current_thread() is threading.main_thread():
        publish_table(engine)
    elif now - published.table_at > MAX_TABLE_AGE_S and now - published.turned_at < STUCK_S:
        return NOT_HERE
    else:
        published.table_wanted = True
    table = engine.published.table
    return RequestTable(items=table.items[: max(0, limit)], total=table.total)


@utility(lane=Lane.INSTANT)
def is_sleeping(engine: EngineCoreProc) -> bool:
    """True while asleep or paused."""
    published = engine.published.stats
    return published.sleeping or published.paused is not None


@utility(lane=Lane.INSTANT)
def is_scheduler_paused(engine: EngineCoreProc) -> bool:
    """True between pause_scheduler and resume_scheduler."""
    return engine.published.stats.paused is not None


@utility(lane=Lane.INSTANT)
def flight_record(engine: EngineCoreProc, limit: int = 4096) -> list[dict[str, int | float]]:
    """The last steps, oldest first: when, tokens, queues, blocks, where the time went."""
    return [record._asdict() for record in engine.flight_record.steps(max(0, limit))]


@utility(lane=Lane.INSTANT)
def dump_stacks(engine: EngineCoreProc) -> str:
    """The Python stack of every thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, '?')} ({ident})\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(parts)


# ---------------------------------------------------------------- looking: through the loop


@utility()
def ping(engine: EngineCoreProc) -> dict[str, int]:
    """A round trip through the busy loop."""
    return {"loop_counter": engine.loop_counter, "step_counter": engine.scheduler.step}


@utility()
def get_supported_tasks(engine: EngineCoreProc) -> list[str]:
    """What kinds of request this engine takes."""
    return ["generate"]


@utility()
def list_loras(engine: EngineCoreProc) -> list[int]:
    """No adapters here: always empty."""
    return []


# ---------------------------------------------------------------- the scheduler


@utility(phases=LIVE, effect="changes")
def pause_scheduler(engine: EngineCoreProc, mode: PauseMode = "abort", clear_cache: bool = True) -> object:
    """Stops scheduling: keep freezes requests, wait lets running ones finish, abort ends them. Answers when done."""
    if mode == "keep":  # nothing that has begun ends now, so nothing falls quiet
        engine.deferred.take_back("pause_scheduler with mode keep was called meanwhile")
    engine.lifecycle.advance(Event.PAUSE_ASKED)
    engine.emit_all(engine.pause_scheduler(mode, clear_cache))
    if mode != "wait" or not engine.scheduler.num_begun:
        return None
    return engine.deferred.when_quiet(clear_cache)


@utility(phases=LIVE, effect="changes")
def resume_scheduler(engine: EngineCoreProc) -> None:
    """Undoes pause_scheduler."""
    if engine.sleep_level:
        raise UtilityError("resume_scheduler is not possible now: the engine sleeps; call wake_up first")
    engine.deferred.take_back("resume_scheduler was called meanwhile")
    engine.lifecycle.advance(Event.RESUME_ASKED)
    engine.resume_scheduler()


@utility(phases=LIVE_OR_DRAINING, effect="changes")
def reset_prefix_cache(
    engine: EngineCoreProc, reset_running_requests: bool = False, reset_connector: bool = False
) -> bool:
    """Forgets cached prefixes. False when requests hold blocks, unless they may be preempted."""
    return engine.scheduler.reset_prefix_cache(reset_running=reset_running_requests)


@utility()
def reset_mm_cache(engine: EngineCoreProc) -> None:
    """No multimodal cache here: done at once."""


@utility()
def reset_encoder_cache(engine: EngineCoreProc) -> None:
    """No encoder cache here: done at once."""


@utility(phases=LIVE_OR_DRAINING, effect="changes")
def abort_requests(engine: EngineCoreProc, request_ids: list[str], as_error: bool = False) -> list[str]:
    """Ends requests of any client and returns those that were live; as_error: their clients hear ERROR."""
    live = [request_id for request_id in request_ids if engine.scheduler.find(request_id) is not None]
    reason = FinishReason.ERROR if as_error else FinishReason.ABORT
    text = ABORTED_BY_OPERATOR if as_error else None
    engine.emit_all(engine.abort_requests(live, reason=reason, text=text))
    return live


# ---------------------------------------------------------------- memory


@utility(phases=LIVE, effect="changes")
def sleep(engine: EngineCoreProc, level: int = 1, mode: PauseMode = "abort") -> object:
    """Level 1 gives the KV cache back, level 2 the weights too; level 0 only pauses. Requests end as in pause."""
    if level not in (0, 1, 2):
        raise UtilityError(f"sleep: level is 0, 1 or 2, not {level}")
    if level and mode == "keep":
        raise UtilityError("sleep: mode keep needs level 0: requests cannot be kept without their KV cache")
    waiting = pause_scheduler(engine, mode, True)
    if not level:
        return waiting
    if isinstance(waiting, Future):
        return engine.deferred.then(waiting, lambda: engine.sleep(level))
    engine.sleep(level)
    return None


@utility(phases=LIVE, effect="changes")
def wake_up(engine: EngineCoreProc, tags: list[str] | None = None) -> bool:
    """Undoes sleep, and the pause that came with it. All memory comes back together, whatever the tags."""
    engine.deferred.take_back("wake_up was called meanwhile")
    engine.wake_up()
    engine.lifecycle.advance(Event.RESUME_ASKED)
    engine.resume_scheduler()
    return True


# ---------------------------------------------------------------- the process


@utility(phases=LIVE_OR_DRAINING, effect="unsafe")
def profile(
    engine: EngineCoreProc, is_start: bool = True, prefix: str | None = None, a: Raw = NIL, b: Raw = NIL
) -> str | None:
    """Starts or stops the torch profiler; stopping returns the trace file's path."""
    return engine.executor.profile(is_start, prefix)


@utility(effect="changes")
def set_log_level(engine: EngineCoreProc, level: Literal["debug", "info", "warning", "error"]) -> str:
    """Changes how much this engine logs; returns the level before."""
    logger = logging.getLogger("engine")
    before = logging.getLevelName(logger.getEffectiveLevel()).lower()
    logger.setLevel(level.upper())
    return before


@utility(phases=ANY, effect="changes")
def shutdown(engine: EngineCoreProc, timeout_s: float = 0.0, valid_until: float | None = None) -> dict[str, int | str]:
    """Ends this engine: lets requests finish for timeout_s seconds, then aborts the rest; 0 aborts at once.
    valid_until: by this machine's monotonic clock; read later, the call does nothing."""
    if not 0 <= timeout_s < 1e9:
        raise UtilityError(f"shutdown: timeout_s must be 0 or more seconds, not {timeout_s}")
    # An idle engine ends in the turn that reads this: a call that takes it back would always come too late.
    if valid_until is not None and time.monotonic() > valid_until:
        raise UtilityError("shutdown: read too late, nobody waits for it any more")
    engine.begin_shutdown(timeout_s, may_cancel=True)
    return {"phase": engine.lifecycle.phase.value, "requests": engine.scheduler.num_unfinished, "pid": os.getpid()}


@utility(phases=LIVE_OR_DRAINING, effect="changes")
def cancel_shutdown(engine: EngineCoreProc) -> bool:
    """Takes a drain back: new requests are admitted again. A drain that a signal asked for cannot be taken back."""
    if engine.lifecycle.phase is not Phase.DRAINING:
        return False
    if not engine.lifecycle.may_cancel:
        raise UtilityError("cancel_shutdown: a signal asked for this shutdown; it cannot be taken back")
    engine.lifecycle.advance(Event.CANCEL_ASKED)
    return True


# ---------------------------------------------------------------- known to frontends, not built here


def _refused(name: str, why: str) -> None:
    def refuse(engine: EngineCoreProc, a: Raw = NIL, b: Raw = NIL, c: Raw = NIL, d: Raw = NIL) -> None:
        raise UtilityError(f"{name}: {why}")

    refuse.__name__, refuse.__doc__ = name, f"Refused: {why}."
    utility()(refuse)


for _name in ("add_lora", "remove_lora", "pin_lora"):
    _refused(_name, "this engine has no LoRA adapters")
_refused("collective_rpc", "arbitrary worker methods are never callable; `describe` lists what is")
_refused("save_sharded_state", "this engine does not write weights")
_refused("execute_dummy_batch", "only engines in data parallel run dummy batches")
