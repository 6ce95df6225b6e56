"""What goes wrong at the edges, counted. Each number has one writer; anybody may read, a moment late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Since start, but for pending_bytes, which is the state now."""

    rejected_messages: int = 0
    """engine-in: messages that could not be read."""
    refused_requests: int = 0
    """Main loop: requests answered without having been admitted."""
    dropped_outputs: int = 0
    """engine-out: messages for clients that leave too much unread."""
    pending_bytes: int = 0
    """engine-out: bytes that zmq has not taken or not finished with."""
