"""What leaves this machine in a bundle without what should stay: values of secrets are replaced, wherever they stand.

Pure. A name says whether a value is secret; every occurrence of such a value in a text goes too."""

from __future__ import annotations

import re

import msgspec

from enginectl.settings import EngineSettings

SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASS|AUTH|CREDENTIAL|COOKIE|SESSION", re.IGNORECASE)
SECRET_ARGUMENT = re.compile(r"^--?[\w-]*(?:token|key|secret|pass|auth|credential)[\w-]*", re.IGNORECASE)
_URL_LOGIN = re.compile(r"(\w+://)[^/\s@:]+:[^/\s@]+@")
_BEARER = re.compile(r"\b(hf_|sk-|ghp_|github_pat_)[A-Za-z0-9_-]{8,}")
GONE = "[redacted]"
MIN_SECRET = 6
"""Shorter values are left in texts: they would hit ordinary words."""


def secrets_of(settings: EngineSettings) -> list[str]:
    """Values that must not be seen, longest first."""
    values = [value for name, value in settings.env.items() if SECRET_NAME.search(name)]
    values += _secret_arguments(settings.engine_args)
    return sorted((value for value in values if len(value) >= MIN_SECRET), key=len, reverse=True)


def _secret_arguments(arguments: list[str]) -> list[str]:
    found = []
    for place, argument in enumerate(arguments):
        if SECRET_ARGUMENT.match(argument):
            _, sign, value = argument.partition("=")
            found.append(value if sign else arguments[place + 1] if place + 1 < len(arguments) else "")
    return [value for value in found if value]


def redacted_settings(settings: EngineSettings) -> EngineSettings:
    """A copy without the values of secrets."""
    secret = set(_secret_arguments(settings.engine_args))
    return msgspec.structs.replace(
        settings,
        env={name: GONE if SECRET_NAME.search(name) else value for name, value in settings.env.items()},
        engine_args=[_argument(argument, secret) for argument in settings.engine_args],
    )


def _argument(argument: str, secret: set[str]) -> str:
    for value in secret:
        argument = argument.replace(value, GONE)
    return argument


def redacted_text(text: str, secrets: list[str]) -> str:
    for value in secrets:
        text = text.replace(value, GONE)
    return _BEARER.sub(GONE, _URL_LOGIN.sub(rf"\1{GONE}@", text))
