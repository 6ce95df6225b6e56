"""Clients that start and own an engine. Importing this package imports no torch; `InprocClient` does, when it is made.

- `InprocClient`    the engine core in this process and thread, no sockets
- `SyncMPClient`    an engine process of its own; any number of threads
- `AsyncMPClient`   an engine process of its own; asyncio"""

from __future__ import annotations

from engine.client.async_ import AsyncMPClient, AsyncStream
from engine.client.base import MPClient, new_request
from engine.client.inproc import InprocClient
from engine.client.sync import Stream, SyncMPClient
from engine.config import EngineConfig
from engine.errors import (
    DeadlineError,
    EngineDeadError,
    EngineError,
    EngineStartError,
    RequestRefused,
    UtilityError,
)
from engine.messages import EngineCoreOutput, EngineCoreRequest, FinishReason, SamplingParams

__all__ = [
    "AsyncMPClient",
    "AsyncStream",
    "DeadlineError",
    "EngineConfig",
    "EngineCoreOutput",
    "EngineCoreRequest",
    "EngineDeadError",
    "EngineError",
    "EngineStartError",
    "FinishReason",
    "InprocClient",
    "MPClient",
    "RequestRefused",
    "SamplingParams",
    "Stream",
    "SyncMPClient",
    "UtilityError",
    "new_request",
]
