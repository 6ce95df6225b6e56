"""TCP ports that stay a test's own while nobody listens on them."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def kept_address() -> Iterator[str]:
    """A zmq address for several sockets one after the other. It is bound without listening: who asks to share it, as
    zmq does, may bind it too; in between nobody else is given its port, nor a connection that is tried again."""
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{keeper.getsockname()[1]}"
