"""The time slice of a thread: a short one lets who wakes, does a little and sleeps again run at once.

Linux gives a waking thread the core when its deadline comes first, and a deadline is now plus the slice; all have the
same 1 to 3 ms by default, hence beside threads that compute without end an IO thread may wait for one of theirs to
be over. Since Linux 6.12 sched_setattr(2) takes a slice for ordinary threads, in sched_runtime; no privilege is needed
and the thread's share of the CPU stays what it was. Threads and processes that it starts inherit it (zmq's own threads
do), until it says that they shall not."""

from __future__ import annotations

import ctypes
import platform

SLICE_NS = 100_000
"""The shortest that Linux takes."""
COMPUTING_SLICE_NS = 500_000
"""Of threads that compute: what others with a usual slice, a frontend say, wait for at most."""
_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of sched_setattr and sched_getattr, which libraries older than glibc 2.41 do not wrap."""
_SCHED_OTHER = 0
_RESET_ON_FORK = 1
"""A flag of the same call; only root takes it back."""


class _Attributes(ctypes.Structure):
    """struct sched_attr of sched_setattr(2), its first version."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime_ns", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
    )


def shorten_time_slice(slice_ns: int = SLICE_NS, *, is_inherited: bool = True) -> bool:
    """Of the calling thread. False where the kernel knows nothing of it, or the thread is under another policy. Not
    `is_inherited`: who is started from now on has the usual slice; nor would they inherit a negative nice value, so
    then nothing is done for a thread that has one."""
    numbers = _CALLS.get(platform.machine())
    if numbers is None:
        return False
    call = ctypes.CDLL(None).syscall
    attributes, this_thread = _Attributes(), 0
    size = ctypes.sizeof(attributes)
    if call(numbers[1], this_thread, ctypes.byref(attributes), size, 0) or attributes.policy != _SCHED_OTHER:
        return False
    if not is_inherited:
        if attributes.nice < 0:
            return False
        attributes.flags |= _RESET_ON_FORK
    # Read first: the call sets the nice value too.
    attributes.runtime_ns = slice_ns
    return not call(numbers[0], this_thread, ctypes.byref(attributes), 0) and time_slice_ns() == slice_ns


def time_slice_ns(thread_id: int = 0) -> int | None:
    """Of the calling thread, or another; None where the kernel does not say."""
    numbers = _CALLS.get(platform.machine())
    attributes = _Attributes()
    if numbers is None or ctypes.CDLL(None).syscall(
        numbers[1], thread_id, ctypes.byref(attributes), ctypes.sizeof(attributes), 0
    ):
        return None
    return attributes.runtime_ns or None
