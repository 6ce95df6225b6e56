"""A thread's time slice, as the kernel tells it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.time_slice import SLICE_NS, shorten_time_slice, time_slice_ns

RELEASE = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
KNOWS_SLICES = RELEASE >= (6, 12) and platform.machine() in ("x86_64", "aarch64")


def test_a_thread_gets_a_short_slice_and_keeps_its_nice_value() -> None:
    def look() -> tuple[int | None, int, bool, int | None, int]:
        me = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, me, 3)
        before = time_slice_ns()
        return before, 3, shorten_time_slice(), time_slice_ns(), os.getpriority(os.PRIO_PROCESS, me)

    with ThreadPoolExecutor(1) as pool:
        before, nice_before, was_done, after, nice_after = pool.submit(look).result()
    assert nice_after == nice_before
    assert was_done == KNOWS_SLICES
    assert after == (SLICE_NS if KNOWS_SLICES else before)


@pytest.mark.skipif(not KNOWS_SLICES, reason="Linux before 6.12 has one slice for all")
def test_a_slice_that_linux_does_not_take_is_told() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(shorten_time_slice, 1).result() is False


def slices_of_others() -> tuple[int | None, int | None]:
    """Of a thread and of a process that the calling thread starts."""
    with ThreadPoolExecutor(1) as pool:
        of_thread = pool.submit(time_slice_ns).result()
    code = "from engine.time_slice import time_slice_ns; print(time_slice_ns())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return of_thread, None if done.stdout.strip() == "None" else int(done.stdout)


@pytest.mark.skipif(not KNOWS_SLICES, reason="Linux before 6.12 has one slice for all")
def test_who_is_started_inherits_it_only_as_long_as_it_may() -> None:
    def look() -> tuple[object, ...]:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(0, os.getpriority(os.PRIO_PROCESS, 0)))
        first = shorten_time_slice(), slices_of_others()
        return *first, shorten_time_slice(is_inherited=False), time_slice_ns(), slices_of_others()

    usual = time_slice_ns()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(look).result() == (True, (SLICE_NS, SLICE_NS), True, SLICE_NS, (usual, usual))


@pytest.mark.skipif(not KNOWS_SLICES or os.geteuid() != 0, reason="needs slices, and a negative nice value")
def test_a_negative_nice_value_is_worth_more_than_a_slice() -> None:
    def look() -> tuple[bool, int]:
        me = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, me, -1)
        return shorten_time_slice(is_inherited=False), os.getpriority(os.PRIO_PROCESS, me)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(look).result() == (False, -1)
