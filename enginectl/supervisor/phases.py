"""The named phases of one start and how long each took: status lines in, PhaseInfo values out."""

from __future__ import annotations

import time

from enginectl.control import PhaseInfo
from enginectl.record import LastStart
from enginectl.supervisor.child import StatusLine

SPAWN = "spawn"
READY = "ready"


class StartTracker:
    """Begins with the spawn. Times are seconds since then."""

    def __init__(self, last: LastStart | None = None) -> None:
        self.phases: list[PhaseInfo] = []
        self.error = ""
        """The first line of what the engine said went wrong."""
        self.ready_after_s: float | None = None
        self.began_at = time.time()
        """Wall clock, s."""
        self._began = time.monotonic()
        self._last = last.phases if last else {}
        self._begin(SPAWN)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def current(self) -> str:
        """The phase that goes on, or the last one."""
        return next((phase.name for phase in self.phases if phase.took_s is None), self.phases[-1].name)

    def _begin(self, name: str, detail: str = "") -> None:
        last = self._last.get(name)
        self.phases.append(PhaseInfo(name=name, began_s=self.elapsed_s, last_took_s=last, detail=detail))

    def _end(self, detail: str = "") -> None:
        for phase in self.phases:
            if phase.took_s is None:
                phase.took_s = self.elapsed_s - phase.began_s
                phase.detail = detail or phase.detail

    def on_line(self, line: StatusLine) -> None:
        if line.event == "failed":
            self.error = self.error or line.error
            return
        known = next((phase for phase in self.phases if phase.name == line.phase), None)
        if line.event == "begin" and line.phase != READY and known is None:
            self._end()
            self._begin(line.phase, line.detail)
        elif line.event == "progress" and known is not None:
            known.detail = line.detail
        elif line.event == "end" and known is not None:
            self._end(line.detail)

    def on_log(self, data: bytes) -> None:
        """An engine that tells no phases: its last log line is the detail of the one that goes on."""
        lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip(" -")]
        for phase in self.phases if lines else []:
            if phase.took_s is None:
                phase.detail = lines[-1].strip()[:120]

    def finish(self) -> float:
        """Ready: the time it took."""
        self._end()
        self.ready_after_s = self.elapsed_s
        return self.ready_after_s

    def as_last_start(self) -> LastStart:
        took = {phase.name: phase.took_s for phase in self.phases if phase.took_s is not None}
        return LastStart(ready_after_s=self.ready_after_s or 0.0, phases=took)
