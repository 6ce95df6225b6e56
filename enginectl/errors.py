"""Errors of the tool and its exit codes: the one table that help, man pages and docs come from.

Every error has an id (`enginectl help E1203` explains it), one exit code, what happened, why, and what to run next."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes; the meaning is the docstring-like text in EXIT_MEANINGS."""

    OK = 0
    ENGINE_ERROR = 1
    USAGE = 2
    NOT_RUNNING = 3
    NOT_FOUND = 4
    WRONG_STATE = 5
    REFUSED = 6
    CONFLICT = 7
    START_FAILED = 8
    ENGINE_DIED = 9
    PARTIAL = 10
    STALLED = 11
    UNREACHABLE = 69
    DEADLINE = 124
    BUG = 125
    INTERRUPTED = 130
    TERMINATED = 143


EXIT_MEANINGS: dict[Exit, str] = {
    Exit.OK: "done, or already so",
    Exit.ENGINE_ERROR: "the engine answered with an error",
    Exit.USAGE: "usage or config error",
    Exit.NOT_RUNNING: "not running",
    Exit.NOT_FOUND: "no such engine, request or utility",
    Exit.WRONG_STATE: "engine not in a state that allows it (starting, draining, sleeping)",
    Exit.REFUSED: "refused: needs --yes, read-only, or unsafe call",
    Exit.CONFLICT: "conflict: name taken, lock held, protocol version mismatch",
    Exit.START_FAILED: "start failed before READY",
    Exit.ENGINE_DIED: "engine died or turned dead while we waited",
    Exit.PARTIAL: "some targets failed (-o json has each)",
    Exit.STALLED: "stalled or degraded (probe, --exit-status)",
    Exit.UNREACHABLE: "supervisor unreachable",
    Exit.DEADLINE: "deadline reached; the message names which one",
    Exit.BUG: "bug in enginectl (traceback in the log, id printed)",
    Exit.INTERRUPTED: "interrupted; the engine was left as it is",
    Exit.TERMINATED: "terminated; the engine was left as it is",
}


class CtlError(Exception):
    """One failure as a person reads it. Travels over the control socket as its fields (enginectl.control.ErrorInfo)."""

    id = "E1000"
    exit = Exit.ENGINE_ERROR

    def __init__(
        self,
        message: str,
        *,
        cause: str = "",
        try_: list[str] | None = None,
        see: list[str] | None = None,
        id: str | None = None,
        exit: Exit | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.try_ = try_ or []
        self.see = see or []
        if id is not None:
            self.id = id
        if exit is not None:
            self.exit = exit

    def __str__(self) -> str:
        return self.message


class UsageError(CtlError):
    id, exit = "E1001", Exit.USAGE


class NotRunning(CtlError):
    id, exit = "E1101", Exit.NOT_RUNNING


class NoSuchEngine(CtlError):
    id, exit = "E1102", Exit.NOT_FOUND


class NoSuchRequest(CtlError):
    id, exit = "E1103", Exit.NOT_FOUND


class NoSuchUtility(CtlError):
    id, exit = "E1104", Exit.NOT_FOUND


class WrongState(CtlError):
    id, exit = "E1105", Exit.WRONG_STATE


class Refused(CtlError):
    id, exit = "E1106", Exit.REFUSED


class Conflict(CtlError):
    id, exit = "E1201", Exit.CONFLICT


class UnknownVerb(CtlError):
    """The supervisor is of another version and lacks what the command asks it for."""

    id, exit = "E1202", Exit.CONFLICT


class StartFailed(CtlError):
    id, exit = "E1203", Exit.START_FAILED


class EngineDied(CtlError):
    id, exit = "E1301", Exit.ENGINE_DIED


class CallFailed(CtlError):
    id, exit = "E1302", Exit.ENGINE_ERROR


class GenerationFailed(CtlError):
    id, exit = "E1303", Exit.ENGINE_ERROR


class Stalled(CtlError):
    id, exit = "E1304", Exit.STALLED


class PartlyFailed(CtlError):
    id, exit = "E1305", Exit.PARTIAL


class Deadline(CtlError):
    id, exit = "E1403", Exit.DEADLINE


class Impossible(CtlError):
    """A condition somebody waits for can never become true."""

    id, exit = "E1410", Exit.ENGINE_DIED


class Unreachable(CtlError):
    id, exit = "E1411", Exit.UNREACHABLE


class BadRuntimeDir(CtlError):
    id, exit = "E1501", Exit.USAGE


class Bug(CtlError):
    id, exit = "E1999", Exit.BUG
