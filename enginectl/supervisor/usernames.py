"""The names of users, for events. A directory service may take minutes to answer for one, so it is asked in a thread.

A uid enters, a name leaves at once: `uid 1000` until the answer is there. One short-lived thread a uid, of a few uids:
only the supervisor's own user and root can reach its socket at all."""

from __future__ import annotations

import pwd
import threading
from collections.abc import Callable

MAX_NAMES = 8


def look_up(uid: int) -> str:
    """Blocks. Raises KeyError."""
    return pwd.getpwuid(uid).pw_name


class UserNames:
    def __init__(self, look_up: Callable[[int], str] = look_up) -> None:
        self._look_up = look_up
        self._names: dict[int, str] = {}

    def of(self, uid: int) -> str:
        """Never blocks."""
        if uid not in self._names and len(self._names) < MAX_NAMES:
            self._names[uid] = f"uid {uid}"
            threading.Thread(target=self._learn, args=(uid,), name="user-name", daemon=True).start()
        return self._names.get(uid, f"uid {uid}")

    def _learn(self, uid: int) -> None:
        try:
            self._names[uid] = self._look_up(uid)
        except (KeyError, OSError):
            pass  # a number will do


USERS = UserNames()
