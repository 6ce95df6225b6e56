"""One stop as it goes on: its stages, who listens, and how a person hurries it.

Pure state; ending.py moves it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from enginectl.control_verbs import StopStage
from enginectl.supervisor.loop import Future

Stage = Literal["drain", "abort", "terminate", "kill", "gone"]
STAGES: tuple[Stage, ...] = ("drain", "abort", "terminate", "kill", "gone")


class Stop:
    """`keeps_supervisor`: a restart; the supervisor goes on afterwards."""

    def __init__(
        self, grace_s: float, term_s: float, by: str, *, keeps_supervisor: bool = False, cut_off_before: int = 0
    ) -> None:
        self.grace_s = grace_s
        self.term_s = term_s
        self.by = by
        self.keeps_supervisor = keeps_supervisor
        self.cut_off_before = cut_off_before
        """How many requests had been cut off when it, or the drain that it ends, began."""
        self.began = time.monotonic()
        self.stages: list[StopStage] = []
        self.has_signalled = False
        """TERM or KILL was sent, so an end by that signal was asked for."""
        self.done: Future[None] = Future()
        """With an error when somebody is still alive after KILL."""
        self.hurried: Future[None] = Future()
        self._listeners: list[Callable[[StopStage], None]] = []
        self._skip_to = 0

    @property
    def detail(self) -> str:
        last = self.stages[-1] if self.stages else None
        return f"{last.stage}: {last.detail}" if last and last.detail else last.stage if last else self.by

    def listen(self, listener: Callable[[StopStage], None]) -> None:
        """Hears the stages so far and those to come."""
        for stage in self.stages:
            listener(stage)
        self._listeners.append(listener)

    def tell(self, stage: Stage, detail: str = "") -> None:
        item = StopStage(stage=stage, detail=detail, elapsed_s=time.monotonic() - self.began)
        self.stages.append(item)
        for listener in self._listeners:
            listener(item)

    def hurry(self) -> None:
        """Leaves the present stage for the next."""
        self.hurried.set_result(None)

    def hurry_to(self, stage: Stage) -> None:
        """Leaves every stage before this one."""
        self._skip_to = max(self._skip_to, STAGES.index(stage))
        current = STAGES.index(self.stages[-1].stage) if self.stages else 0
        if current < self._skip_to:
            self.hurry()

    def skips(self, stage: Stage) -> bool:
        return STAGES.index(stage) < self._skip_to

    def next_stage(self) -> Future[None]:
        """What a wait of the coming stage listens to."""
        self.hurried = Future()
        return self.hurried
