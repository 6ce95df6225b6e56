"""The person's terminal: taken over, drawn on, and given back as it was, whatever ends the dashboard.

Owns the terminal's settings, the alternate screen, the signal handlers and the wake-up pipe. A signal only sets a flag
and wakes the loop, so that nothing is ever left half drawn or half restored; a second one of the ending kind gives
the terminal back at once and ends the process, in case the loop itself is stuck."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import termios
from collections.abc import Callable
from types import FrameType, TracebackType

from rich.console import Console
from rich.live import Live

from enginectl.top.keys import ESC_WAIT_S, KeyReader
from enginectl.top.layout import Frame

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GIVE_BACK = b"\x1b[?25h\x1b[?1049l"
"""Show the cursor, leave the alternate screen."""
FALLBACK = (80, 24)


class Ended(BaseException):
    """An ending signal arrived; raised by the loop, between two frames."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Terminal:
    """A context manager. Inside: `draw`, `wait` for keys or news, `suspend`. Main thread only, `wake` from any."""

    def __init__(self) -> None:
        self._in = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._out = sys.stdout.fileno()
        self._console = Console(file=sys.stdout, force_terminal=True, highlight=False, legacy_windows=False)
        self._live: Live | None = None
        self._drawn: Frame | None = None
        self._saved: list[int | list[bytes | int]] | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self._ending = 0
        self._stop_asked = False
        self._was_continued = False
        self._keys = KeyReader()
        self._stack = contextlib.ExitStack()

    # ------------------------------------------------------------ take and give back

    def __enter__(self) -> Terminal:
        with contextlib.ExitStack() as stack:
            self._open_pipe(stack)
            self._take_signals(stack)
            stack.callback(self._give_back)
            self._take()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _open_pipe(self, stack: contextlib.ExitStack) -> None:
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        stack.callback(os.close, self._wake_read)
        stack.callback(self._close_writer)
        self._selector = stack.enter_context(contextlib.closing(selectors.DefaultSelector()))
        self._selector.register(self._wake_read, selectors.EVENT_READ, "wake")
        if self._in is not None:
            self._selector.register(self._in, selectors.EVENT_READ, "keys")

    def _close_writer(self) -> None:
        """Another thread may call wake() later: then into nothing."""
        fd, self._wake_write = self._wake_write, -1
        os.close(fd)

    def _take_signals(self, stack: contextlib.ExitStack) -> None:
        for number in (*ENDING, signal.SIGTSTP, signal.SIGWINCH, signal.SIGCONT):
            self._handlers[number] = signal.signal(number, self._on_signal)
        previous = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        stack.callback(self._restore_signals, previous)

    def _restore_signals(self, wakeup_fd: int) -> None:
        signal.set_wakeup_fd(wakeup_fd)
        for number, handler in self._handlers.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTSTP:
            self._stop_asked = True
        if number == signal.SIGCONT:
            self._was_continued = True
        if number not in ENDING:
            return
        if self._ending and number == self._ending:
            self._last_resort(number)
        self._ending = self._ending or number

    def _last_resort(self, number: int) -> None:
        with contextlib.suppress(OSError):
            os.set_blocking(self._out, False)
            os.write(self._out, GIVE_BACK)
        self._restore_modes()
        os._exit(128 + number)

    def _take(self) -> None:
        if self._in is not None:
            self._saved = termios.tcgetattr(self._in)
            self._set_modes(self._in)
        self._live = Live(
            Frame([], 1),
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self._drawn = None

    def _set_modes(self, fd: int) -> None:
        modes = termios.tcgetattr(fd)
        modes[0] &= ~termios.IXON  # Ctrl-S would freeze the picture, and with it the end
        modes[3] &= ~(termios.ICANON | termios.ECHO)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(fd, termios.TCSANOW, modes)

    def _give_back(self) -> None:
        live, self._live = self._live, None
        # A terminal that is gone (hang-up) cannot be written to; its settings are gone with it.
        with contextlib.suppress(OSError, ValueError):
            if live is not None:
                live.stop()
        self._restore_modes()

    def _restore_modes(self) -> None:
        if self._in is not None and self._saved is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._in, termios.TCSANOW, self._saved)
            self._saved = None

    # ------------------------------------------------------------ use

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows now; a terminal that does not know is 80x24."""
        try:
            columns, rows = os.get_terminal_size(self._out)
        except OSError:
            return FALLBACK
        return (columns, rows) if columns > 0 and rows > 0 else FALLBACK

    def draw(self, frame: Frame) -> None:
        """Writes the frame unless it is on the screen already. Raises OSError when the terminal is gone."""
        if self._live is None or frame == self._drawn:
            return
        self._console.size = self.size  # type: ignore[assignment]
        self._live.update(frame, refresh=True)
        self._drawn = frame

    def redraw(self) -> None:
        """The next draw writes everything, after somebody else wrote on this terminal or it was resized."""
        self._drawn = None

    def wake(self) -> None:
        """Ends `wait`. From any thread."""
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"\0")

    def wait(self, timeout_s: float) -> list[str]:
        """Keys pressed; empty when something else happened or nothing did. Raises Ended for an ending signal."""
        if self._keys.is_waiting:
            timeout_s = min(timeout_s, ESC_WAIT_S)
        keys: list[str] = []
        ready = [] if self._ending else self._selector.select(timeout_s)
        for key, _ in ready:
            if key.data == "wake":
                self._drain_pipe()
            else:
                keys += self._read_keys()
        if self._keys.is_waiting and not ready:
            keys += self._keys.flush()
        if self._stop_asked:
            self._stop_asked = False
            keys.append("ctrl-z")
        if self._ending:
            raise Ended(self._ending)
        if self._was_continued:
            self._was_continued = False
            if self._in is not None:  # whoever had the terminal meanwhile left it in modes of its own
                self._set_modes(self._in)
            self.redraw()
        return keys

    def _drain_pipe(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(os.read(self._wake_read, 4096)) == 4096:
                pass

    def _read_keys(self) -> list[str]:
        try:
            data = os.read(self._in if self._in is not None else 0, 4096)
        except OSError:
            data = b""
        if not data:
            raise Ended(signal.SIGHUP)
        return self._keys.feed(data)

    def suspend(self) -> None:
        """Gives the terminal back, stops this process as Ctrl-Z does, and takes it again on continue. Where no shell
        could continue it, the kernel ignores the stop."""
        self._give_back()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self._take()
