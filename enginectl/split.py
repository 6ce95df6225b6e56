"""`vllm serve MODEL ...`, the command people have, into its two halves: the API server and the engine.

Words come in, words leave; starts nothing and imports nothing. What cannot be split is refused with the reason."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from enginectl.errors import UsageError

DEFAULT_PORT = 8000
SHORT = {"-dp": "--data-parallel-size", "-dpn": "--data-parallel-rank", "-dpr": "--data-parallel-start-rank",
         "-dpl": "--data-parallel-size-local", "-dpa": "--data-parallel-address", "-dpp": "--data-parallel-rpc-port",
         "-dpb": "--data-parallel-backend", "-dph": "--data-parallel-hybrid-lb", "-dpe": "--data-parallel-external-lb",
         "-n": "--nnodes", "-r": "--node-rank", "-asc": "--api-server-count"}  # fmt: skip
OURS = "it is what tells the two halves where they meet, and that is decided here"
REFUSED = {
    "--headless": "it has no API server: start it as `--engine vllm --model MODEL -- ARGS`",
    "--data-parallel-external-lb": "each rank has an API server of its own: start each rank as an engine of its own",
    "--data-parallel-hybrid-lb": "several nodes have API servers of their own",
    "--data-parallel-rank": "it is one rank of several, balanced from outside",
    "--data-parallel-start-rank": "it is one node of several",
    "--data-parallel-size-local": OURS,
    "--data-parallel-address": OURS,
    "--data-parallel-rpc-port": OURS,
    "--node-rank": "one engine over several nodes cannot be supervised from one of them",
}
UNLESS_ONE = {
    "--data-parallel-size": "several ranks need one place each behind the balancer, which is not built yet",
    "--nnodes": "one engine over several nodes cannot be supervised from one of them",
}
FRONTEND_ONLY = frozenset({"--host", "--port", "--uds", "--api-key", "--api-server-count"})
"""Not for the engine: places that are taken already, and a secret it does not need."""


@dataclass(frozen=True, slots=True)
class Split:
    program: str
    model: str
    frontend_args: list[str]
    """Behind `vllm serve`."""
    engine_args: list[str]
    """Behind `vllm serve MODEL --headless`."""
    http_port: int | None
    """None: it serves on a unix socket."""


def is_serve_command(words: list[str]) -> bool:
    return len(words) > 1 and os.path.basename(words[0]) == "vllm"


def split_command(words: list[str]) -> Split:
    """Raises UsageError."""
    if words[1] != "serve":
        raise UsageError(f"`vllm {words[1]}` cannot be split", cause="only `vllm serve MODEL ...` is a server")
    pairs = _pairs(words[2:])
    model = _model(pairs)
    _check(pairs)
    for path in (value for name, value in pairs if name == "--config" and value):
        _check(_config_pairs(path))
    port = next((value for name, value in reversed(pairs) if name == "--port"), None)
    if port is not None and not port.isdigit():
        raise UsageError(f"--port {port!r} is no number")
    unix = any(name == "--uds" for name, _ in pairs)
    engine = [pair for pair in pairs if pair[0] not in FRONTEND_ONLY and pair[0] not in ("", "--model")]
    return Split(
        program=words[0], model=model, frontend_args=list(words[2:]), engine_args=_words(engine),
        http_port=None if unix else int(port or DEFAULT_PORT),
    )  # fmt: skip


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    """(option, value) in long form with dashes; ("", word) for what belongs to no option. An option that is followed by
    several words keeps them all in its value's place, one pair each with an empty option."""
    pairs: list[tuple[str, str]] = []
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            name, equals, value = word.partition("=")
            name = name.replace("_", "-") if name.startswith("--") else SHORT.get(name, name)
            pairs.append((SHORT.get(name, name), value if equals else ""))
        elif pairs and pairs[-1][0] and not pairs[-1][1]:
            pairs[-1] = (pairs[-1][0], word)
        else:
            pairs.append(("", word))
    return pairs


def _model(pairs: list[tuple[str, str]]) -> str:
    given = next((value for name, value in pairs if name == "--model"), "")
    if not given and pairs and not pairs[0][0]:
        given = pairs[0][1]
    if not given:
        raise UsageError("the command names no model", try_=["vllm serve MODEL ..."])
    return given


def _words(pairs: list[tuple[str, str]]) -> list[str]:
    return [word for name, value in pairs for word in (name, value) if word]


def _check(pairs: list[tuple[str, str]]) -> None:
    for name, value in pairs:
        reason = REFUSED.get(name, "")
        if name in UNLESS_ONE and value != "1":
            reason = UNLESS_ONE[name]
        if name == "--data-parallel-backend" and value == "ray":
            reason = "Ray starts the engines itself, where nobody can stand in between"
        if reason:
            raise UsageError(f"the command cannot be split: {name} {value}".rstrip(), cause=reason)


def _config_pairs(path: str) -> list[tuple[str, str]]:
    """The top level of a YAML file of options."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--config {path} cannot be read", cause=str(error)) from None
    found = [re.match(r"([A-Za-z][\w-]*)\s*:\s*(\S*)", line) for line in lines]
    return [("--" + match[1].replace("_", "-"), match[2].strip("'\"")) for match in found if match]
