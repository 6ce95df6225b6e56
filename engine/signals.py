"""Stop signals, the parent's death and stack dumps: remembered from the first instruction of the process on.

Until the engine is ready, SIGTERM and SIGINT raise SystemExit(143) in the main thread, once; a thread makes sure after
MAKE_SURE_S. From then on they set `requested`, and that thread puts a Wakeup into the queue. A repeated signal changes
nothing: clean-up is never interrupted.

Python runs a handler between two instructions of the main thread. A signal that comes after the last of them and before
the thread sleeps in its queue would be heard at the next request only. So the kernel's side of every signal writes a
byte to a pipe (signal.set_wakeup_fd), whatever thread it meets, and whoever reads that wakes the main thread."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.queues import InputQueue

STOPPED_BEFORE_READY = 143
MAKE_SURE_S = 3.0
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Made and used by the main thread; one daemon thread of its own, from install() to restore()."""

    def __init__(self) -> None:
        self.requested = False
        """Since the loop last looked."""
        self._was_asked = False
        self._queue: InputQueue | None = None
        self._parent = os.getppid()
        self._before: dict[signal.Signals, Any] = {}
        self._write_fd = self._fd_before = -1

    def install(self) -> None:
        read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._fd_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        threading.Thread(target=self._wake, args=(read_fd,), name="signals", daemon=True).start()
        for number in _STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._on_stop)

    def attach(self, queue: InputQueue) -> None:
        """From here on signals wake the loop instead of raising."""
        self._queue = queue

    def restore(self) -> None:
        """Gives the handlers back. After a stop was asked for, the default ones are replaced by deafness: a repeated
        signal may come between here and the end of the process, and must not turn a clean exit into a death."""
        for number, before in self._before.items():
            is_default = before in (signal.SIG_DFL, signal.default_int_handler)
            signal.signal(number, signal.SIG_IGN if is_default and self._was_asked else before)
        self._before.clear()
        if self._write_fd >= 0:
            signal.set_wakeup_fd(self._fd_before)
            os.close(self._write_fd)
            self._write_fd = -1

    @property
    def is_orphan(self) -> bool:
        return os.getppid() != self._parent

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        again, self._was_asked = self._was_asked, True
        self.requested = True
        if self._queue is None and not again:
            raise SystemExit(STOPPED_BEFORE_READY)

    def _wake(self, read_fd: int) -> None:
        """The thread: until the other end of the pipe is closed."""
        is_sure = False
        while os.read(read_fd, 64):
            if self._queue is not None:
                from engine.queues import Wakeup

                self._queue.put(Wakeup())
            elif not is_sure:
                is_sure = True
                make_sure(MAKE_SURE_S, STOPPED_BEFORE_READY, unless=lambda: self._queue is not None)
        os.close(read_fd)


def make_sure(after_s: float, status: int, unless: Callable[[], bool] = lambda: False) -> None:
    """Ends the process after a while whatever the main thread is doing, unless it has ended by itself."""

    def end() -> None:
        time.sleep(after_s)
        if not unless():
            sys.stderr.flush()
            os._exit(status)

    threading.Thread(target=end, name="make-sure", daemon=True).start()


def watch_parent(death_fd: int, grace_s: float) -> None:
    """End of file on the death pipe means that the parent is gone: stop as on SIGTERM, and make sure."""

    def watch() -> None:
        try:
            while os.read(death_fd, 1):
                pass
        except OSError:
            return
        make_sure(grace_s + MAKE_SURE_S, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="death-pipe", daemon=True).start()


def die_with_parent(parent: int) -> None:
    """The kernel sends SIGTERM when the thread that spawned us ends. A second line beside the death pipe.

    The parent may have died before this call, so its pid is compared once after it. Exits in that case."""
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(STOPPED_BEFORE_READY)


def dump_stacks_on_signal() -> None:
    """SIGUSR2 writes every thread's stack to stderr, also while C code holds the interpreter lock."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, all_threads=True, chain=False)
