"""Owns a group of foreign processes: starts one command, ends it all when the supervisor goes, passes its status on.

`python guard.py --death-fd FD [--term-s S] -- COMMAND...`: stdlib only, so that any interpreter runs it. It is the
leader of a session of its own. TERM, INT, HUP are passed to the command; the end of file on the death pipe means TERM,
S seconds, KILL to everything in the session. When the command has ended by itself the rest gets the same, and the
guard's exit status is the command's (128 + N for a signal)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

TERM_S = 5.0
KILL_S = 5.0
LOOK_S = 0.1
PASSED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def members() -> list[int]:
    """Live processes of our session, ourselves excepted."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:
                text = file.read()
        except OSError:
            continue
        fields = text[text.rindex(b")") + 2 :].split()
        if fields[0] not in (b"Z", b"X") and int(fields[3]) == os.getsid(0):
            found.append(int(entry))
    return found


def tell(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def end_all(term_s: float, child: subprocess.Popen[bytes]) -> None:
    """TERM, patience, KILL, until nobody of the session is left."""
    tell(members(), signal.SIGTERM)
    deadline, killed_at = time.monotonic() + term_s, None
    while members():
        child.poll()  # a zombie of ours would count for ever
        now = time.monotonic()
        if killed_at is None and now > deadline:
            killed_at = now
        if killed_at is not None:
            tell(members(), signal.SIGKILL)
            if now - killed_at > KILL_S:
                return
        time.sleep(LOOK_S)


def parse(argv: list[str]) -> tuple[int, float, list[str]]:
    """(death fd, patience, command)."""
    cut = argv.index("--")
    options, command = argv[:cut], argv[cut + 1 :]
    given = dict(zip(options[::2], options[1::2], strict=True))
    return int(given["--death-fd"]), float(given.get("--term-s", TERM_S)), command


def main(argv: list[str]) -> int:
    death_fd, term_s, command = parse(argv)
    os.set_inheritable(death_fd, False)
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (*PASSED, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"ERROR cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    while child.poll() is None:
        ready, _, _ = select.select([death_fd, wake_read], [], [], 5.0)
        if death_fd in ready:
            end_all(term_s, child)
            return 1
        if wake_read in ready:
            for received in os.read(wake_read, 64):
                if received in PASSED:
                    tell([child.pid], received)
    end_all(term_s, child)
    return 128 - child.returncode if child.returncode < 0 else child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
