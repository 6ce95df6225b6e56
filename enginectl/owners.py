"""Whose a place is, and how to act as that user: for root in somebody else's places, as under `sudo -E`.

Enters: uids, the environment. Leaves: names, commands, and root's own places instead of another user's. Writes nothing
but our own environment."""

from __future__ import annotations

import os
import pwd
import shlex
from pathlib import Path


def owner_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "nobody known"


def home_of(uid: int) -> Path | None:
    try:
        return Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return None


def sudo(uid: int) -> str:
    """How a shell becomes that user."""
    try:
        return f"sudo -u {shlex.quote(pwd.getpwuid(uid).pw_name)}"
    except KeyError:
        return f"sudo -u '#{uid}'"


def use_own_places() -> list[str]:
    """Root's own home, cache and config in the environment, while those are another user's: what root made in there its
    owner could neither use nor remove, and a config file names programs to run. Returns what to say of it."""
    if os.geteuid():
        return []  # every command passes here: nobody is asked for names
    notes = []
    given, home = os.environ.get("HOME", ""), home_of(0)
    if (owner := _other_owner(given)) and home is not None and home.is_dir():
        theirs = f"its owner's engines: {sudo(owner)} enginectl ..."
        notes.append(f"note: HOME is {given}, which is not root's; {home} is used; {theirs}")
        os.environ["HOME"] = str(home)
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        place = os.environ.get(name, "")
        if _other_owner(place):
            notes.append(f"note: {name} is {place}, which is not root's; root's own is used")
            del os.environ[name]
    return notes


def _other_owner(place: str) -> int:
    """Who else owns a place that root was given; 0 for nobody."""
    if not place:
        return 0
    try:
        return owner_of(place)
    except OSError:
        return 0


def owner_of(place: str) -> int:
    """Raises OSError."""
    return os.stat(place).st_uid
