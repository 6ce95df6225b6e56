"""Whose a name is, whatever happens to its files: an address in the kernel that only one process can hold.

A supervisor binds it for its life; it ends with the process, and no `rm` reaches it. Others ask the kernel who holds
it, so a supervisor is found though it is stopped or its directories were removed. Nothing is ever said over it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import zlib
from pathlib import Path

from enginectl.record import taken

BACKLOG = 4096
_CREDENTIALS = struct.Struct("3i")


def address_of(state: Path) -> bytes:
    """Of the engine with that state directory, which need not exist. In the abstract namespace: no file."""
    path = os.fsencode(os.path.realpath(state))
    tag = f"{zlib.crc32(path):08x}{zlib.adler32(path):08x}"
    return f"\0enginectl-{os.geteuid()}-{tag}-{state.name[:40]}".encode()


class Claim:
    """Held from take() to the end of the process."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._socket: socket.socket | None = None

    def take(self) -> None:
        """Raises Conflict when another process of ours holds it. One of somebody else means nothing here."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(address_of(self._state))
        except OSError:
            claim.close()
            if pid := claim_holder(self._state):
                raise taken(self._state.name, pid, "its files were removed while it ran; they come back") from None
            return
        claim.listen(BACKLOG)
        claim.setblocking(False)
        self._socket = claim

    @property
    def fd(self) -> int:
        """To be watched; -1 without a claim."""
        return self._socket.fileno() if self._socket is not None else -1

    def answer(self) -> None:
        """Lets go of those who asked, so that the next ones can."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.accept()[0].close()

    def release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def claim_holder(state: Path) -> int:
    """The pid of our process that holds it; 0 when there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(address_of(state))
            said = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return 0
    pid, uid, _ = _CREDENTIALS.unpack(said)
    return pid if uid == os.geteuid() else 0
