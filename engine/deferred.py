"""Answers that come later: Futures of utility calls that wait for the scheduler to fall quiet. Main loop only.

A shutdown cancels them, a resume takes them back; each still becomes exactly one answer, given by engine.rpc."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from engine.errors import UtilityError
from engine.lifecycle import Lifecycle
from engine.scheduler.scheduler import Scheduler


class Deferred:
    """complete() is called once each turn of the loop."""

    def __init__(self, scheduler: Scheduler, lifecycle: Lifecycle) -> None:
        self._scheduler = scheduler
        self._lifecycle = lifecycle
        self._waiting: list[tuple[Future[object], bool]] = []

    def when_quiet(self, clear_cache: bool) -> Future[object]:
        """Completes once nothing that had begun is left; the prefix cache is cleared first when asked."""
        future: Future[object] = Future()
        self._waiting.append((future, clear_cache))
        return future

    def then(self, first: Future[object], act: Callable[[], None]) -> Future[object]:
        """Completes after `first` did and `act` ran."""
        second: Future[object] = Future()

        def run(done: Future[object]) -> None:
            if done.cancelled():
                _cancel(second)
                return
            if (error := done.exception()) is not None:
                second.set_exception(error)
                return
            try:
                act()
            except Exception as error:
                second.set_exception(error)
            else:
                second.set_result(None)

        first.add_done_callback(run)
        return second

    def take_back(self, why: str) -> None:
        """Scheduling goes on: what waited for quiet is not done any more, least of all much later."""
        waiting, self._waiting = self._waiting, []
        for future, _ in waiting:
            future.set_exception(UtilityError(f"taken back: {why}"))

    def complete(self) -> None:
        is_ending = self._lifecycle.phase.is_shutting_down
        if not self._waiting or (self._scheduler.num_begun and not is_ending):
            return
        waiting, self._waiting = self._waiting, []
        for future, clear_cache in waiting:
            if is_ending:
                _cancel(future)
                continue
            if clear_cache:
                self._scheduler.reset_prefix_cache()
            future.set_result(None)


def _cancel(future: Future[object]) -> None:
    future.cancel()
    future.set_running_or_notify_cancel()
