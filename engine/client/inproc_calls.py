"""The utilities of an engine that lives in its caller's process: those that make sense without one of its own.

Enters: the client, arguments as on the wire. Leaves: the result. Owned by nobody: a literal table of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, get_args

from engine.errors import UtilityError
from engine.reports import RequestTable

if TYPE_CHECKING:
    from engine.client.inproc import InprocClient

PauseMode = Literal["abort", "wait", "keep"]


def _get_supported_tasks(client: InprocClient) -> list[str]:
    return ["generate"]


def _is_scheduler_paused(client: InprocClient) -> bool:
    return client.core.scheduler.pause_mode is not None


def _is_sleeping(client: InprocClient) -> bool:
    return client.core.sleep_level > 0 or _is_scheduler_paused(client)


def _pause_scheduler(client: InprocClient, mode: PauseMode = "abort", clear_cache: bool = True) -> None:
    if mode not in get_args(PauseMode):
        raise UtilityError(f"pause_scheduler: mode is abort, wait or keep, not {mode!r}")
    client.deliver(client.core.pause_scheduler(mode, clear_cache))
    scheduler = client.core.scheduler
    while mode == "wait" and scheduler.num_begun and client.step():
        pass
    if clear_cache and not scheduler.num_begun:
        scheduler.reset_prefix_cache()


def _resume_scheduler(client: InprocClient) -> None:
    if client.core.sleep_level:
        raise UtilityError("resume_scheduler is not possible now: the engine sleeps; call wake_up first")
    client.core.resume_scheduler()


def _sleep(client: InprocClient, level: int = 1, mode: PauseMode = "abort") -> None:
    if level not in (0, 1, 2) or (level and mode == "keep"):
        raise UtilityError(f"sleep: level {level} with mode {mode!r} is not possible")
    _pause_scheduler(client, mode, True)
    if level:
        client.core.sleep(level)


def _wake_up(client: InprocClient, tags: list[str] | None = None) -> bool:
    client.core.wake_up()
    client.core.resume_scheduler()
    return True


def _reset_prefix_cache(
    client: InprocClient, reset_running_requests: bool = False, reset_connector: bool = False
) -> bool:
    return client.core.scheduler.reset_prefix_cache(reset_running=reset_running_requests)


def _profile(client: InprocClient, is_start: bool = True, prefix: str | None = None) -> str | None:
    if not client.config.allow_unsafe_calls:
        raise UtilityError("profile needs a client that was made with allow_unsafe_calls")
    return client.core.executor.profile(is_start, prefix)


def _requests(client: InprocClient, limit: int = 1000) -> RequestTable:
    return client.core.scheduler.requests_table(limit)


INPROC_UTILITIES: dict[str, Callable[..., object]] = {
    "get_supported_tasks": _get_supported_tasks,
    "is_scheduler_paused": _is_scheduler_paused,
    "is_sleeping": _is_sleeping,
    "pause_scheduler": _pause_scheduler,
    "profile": _profile,
    "requests": _requests,
    "reset_prefix_cache": _reset_prefix_cache,
    "resume_scheduler": _resume_scheduler,
    "sleep": _sleep,
    "wake_up": _wake_up,
}
