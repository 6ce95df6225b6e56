"""What `wait` waits for: a state by name, or a figure compared with a number. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from enginectl.control import EngineView
from enginectl.control_stats import Stats
from enginectl.errors import UsageError
from enginectl.verbs import nearest
from enginectl.views import SERVING

OVER = frozenset({"exited", "failed", "lost", "stopping"})
_COMPARISON = re.compile(r"^\s*([a-z_]+)\s*(<=|>=|==|=|<|>)\s*(\d+(?:\.\d+)?)\s*(%?)\s*$")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "=": operator.eq,
}
FIGURES: dict[str, Callable[[Stats], float | None]] = {
    "kv": lambda s: s.kv_used_ratio,
    "running": lambda s: s.running,
    "waiting": lambda s: s.waiting,
    "requests": lambda s: s.running + s.waiting,
    "tok_s": lambda s: s.decode_tok_s,
    "step_ms": lambda s: s.step.p50_ms,
    "finished": lambda s: s.finished_total,
}


def _is_ready(view: EngineView) -> bool:
    return view.state in SERVING and not view.cordoned


def _is_idle(view: EngineView) -> bool:
    if view.state not in (*SERVING, "cordoned", "paused", "sleeping"):
        return False
    return view.stats is None or view.stats.running + view.stats.waiting == 0


def _is_stopped(view: EngineView) -> bool:
    return view.state in ("exited", "failed")


STATES: dict[str, Callable[[EngineView], bool]] = {"ready": _is_ready, "idle": _is_idle, "stopped": _is_stopped}


@dataclass(frozen=True, slots=True)
class Condition:
    text: str
    holds: Callable[[EngineView], bool]

    def is_impossible(self, view: EngineView) -> bool:
        """The engine has ended or is ending, and nothing will start it again by itself."""
        return self.text != "stopped" and view.state in OVER and not view.returns


def parse_condition(word: str) -> Condition:
    """Raises UsageError with the nearest name."""
    if word in STATES:
        return Condition(word, STATES[word])
    match = _COMPARISON.match(word)
    if match is None:
        near = nearest(word, [*STATES, *FIGURES])
        hint = f"; did you mean {near!r}?" if near else ""
        raise UsageError(f"--for does not know {word!r}{hint}", try_=["--for ready", "--for 'kv<0.8'"])
    name, sign, number, percent = match.groups()
    if name not in FIGURES:
        near = nearest(name, list(FIGURES))
        raise UsageError(
            f"--for knows no figure {name!r}" + (f"; did you mean {near!r}?" if near else ""),
            try_=[f"one of {', '.join(FIGURES)}"],
        )
    return Condition(word, _comparison(name, sign, float(number) / (100 if percent else 1)))


def _comparison(name: str, sign: str, limit: float) -> Callable[[EngineView], bool]:
    def holds(view: EngineView) -> bool:
        value = FIGURES[name](view.stats) if view.stats is not None else None
        return value is not None and _OPERATORS[sign](value, limit)

    return holds
