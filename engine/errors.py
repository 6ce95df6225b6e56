"""What can go wrong in and around an engine. A peer's mistake and our own bug never share a class.

Texts say what happened, the value, and what to do; `RequestRefused` travels to the client as stop_reason."""

from __future__ import annotations


class EngineError(Exception):
    """Base of everything this package raises on purpose."""


class EngineDeadError(EngineError):
    """The engine died, or sent ENGINE_CORE_DEAD, while somebody waited for it."""


class EngineStartError(EngineError):
    """The engine ended before READY. `phase` names where; `cause` is the first real error line."""

    def __init__(self, message: str, *, phase: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.phase = phase
        self.cause = cause


class DeadlineError(EngineError):
    """A wait reached its limit; the message names which wait and how long it was."""


class ConfigError(EngineError):
    """A setting is unknown, malformed or impossible here."""


class ModelError(EngineError):
    """A model directory or file cannot be used; the message names the file and what to do."""


class ProtocolError(EngineError):
    """A peer sent something that cannot be read. Counted, dropped, and answered when an id of it is known."""

    def __init__(
        self, message: str, *, request_id: str | None = None, call_id: int | None = None, client_index: int = 0
    ) -> None:
        super().__init__(message)
        self.request_id = request_id
        self.call_id = call_id
        self.client_index = client_index


class RequestRefused(EngineError):
    """This request cannot be admitted; it gets one output with finish_reason ERROR and this text."""


class UtilityError(EngineError):
    """A utility call cannot be carried out; the text becomes its failure_message and names the method."""


class CacheFull(EngineError):
    """No free KV block is left. Nothing was written."""


class EngineBug(EngineError):
    """Our own shared state is broken: the engine dies with last words."""
