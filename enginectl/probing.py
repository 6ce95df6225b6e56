"""Alive, ready, started: what a probe says of an engine. A view in, an exit code and one line out. Pure.

The command `probe` and the supervisor's /livez and /readyz ask the same questions here."""

from __future__ import annotations

from typing import Literal, NamedTuple

from enginectl.control import EngineView, State
from enginectl.control_stats import Stats
from enginectl.errors import Exit

Kind = Literal["liveness", "readiness", "startup"]
GONE: frozenset[State] = frozenset({"exited", "failed", "backoff"})
SERVING: frozenset[State] = frozenset({"ready", "idle", "busy", "saturated"})


class Answer(NamedTuple):
    exit: Exit
    word: str
    """ok, or what is wrong in one word."""
    reason: str = ""

    @property
    def is_ok(self) -> bool:
        return self.exit is Exit.OK


def judge(kind: Kind, state: State, reason: str, *, is_cordoned: bool, was_ready: bool) -> Answer:
    """liveness: is its process there and does its loop turn. readiness: would a new request be served now. startup:
    has it been ready once."""
    if state in ("lost", "unreachable"):
        return Answer(Exit.UNREACHABLE, "unreachable", reason or "its supervisor is gone")
    if state in GONE:
        return Answer(Exit.NOT_RUNNING, state, reason)
    if state == "starting":
        return Answer(Exit.OK, "ok", "starting") if kind == "liveness" else Answer(Exit.WRONG_STATE, state, reason)
    if kind == "startup" and was_ready:
        return Answer(Exit.OK, "ok")
    if state == "stalled":
        return Answer(Exit.STALLED, "stalled", reason)
    if kind == "liveness":
        return Answer(Exit.OK, "ok", "" if state in SERVING else state)
    if state not in SERVING:
        return Answer(Exit.WRONG_STATE, state, reason)
    if is_cordoned:
        return Answer(Exit.WRONG_STATE, "cordoned", "new requests are refused")
    return Answer(Exit.OK, "ok")


def judge_view(kind: Kind, view: EngineView) -> Answer:
    return judge(kind, view.state, view.reason, is_cordoned=view.cordoned, was_ready=view.ready is not None)


def line(answer: Answer, stats: Stats | None) -> str:
    """`ok step=88213 age=0.02s run=38 wait=4`, or `stalled its loop has not turned ...`."""
    parts = [answer.word]
    if stats is not None and answer.word != "unreachable":
        parts.append(f"step={stats.step_counter}")
        if stats.loop_age_s is not None:
            parts.append(f"age={stats.loop_age_s:.2f}s")
        parts += [f"run={stats.running}", f"wait={stats.waiting}"]
    if answer.reason and answer.reason != answer.word:
        parts.append(f"({answer.reason})" if answer.is_ok else f"reason: {answer.reason}")
    return " ".join(parts)
