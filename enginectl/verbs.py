"""The command tree as a literal table: every verb, its module, its group in `--help`, its one line.

`enginectl --help` reads this and imports no verb; a verb's module is imported when it is called. Completions and man
pages are generated from the same table."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "ENGINECTL_"
"""Of every variable that is ours."""


class Verb(NamedTuple):
    name: str
    module: str
    group: str
    summary: str
    entry: str = "command"
    """The function (or typer.Typer) in the module."""


def _verb(name: str, group: str, summary: str, module: str = "", entry: str = "command") -> Verb:
    return Verb(name, f"enginectl.commands.{module or name}", group, summary, entry)


_TABLE = (
    _verb("start", "Start and stop", "start an engine and wait until it is ready"),
    _verb("run", "Start and stop", "start in the foreground: for a unit or a container"),
    _verb("drain", "Start and stop", "refuse new work, finish what runs, end"),
    _verb("stop", "Start and stop", "end an engine: finish or abort what runs, then shut down"),
    _verb("restart", "Start and stop", "stop and start again with the recorded settings"),
    _verb("kill", "Start and stop", "KILL the engine's process group now"),
    _verb("ps", "Look", "list engines"),
    _verb("status", "Look", "one engine: state, verdict, figures, or how it died"),
    _verb("requests", "Look", "list the requests in flight, the hog first"),
    _verb("top", "Look", "watch an engine live"),
    _verb("explain", "Look", "why a request waits, on whom, and until when"),
    _verb("events", "Look", "what happened to an engine"),
    _verb("logs", "Look", "the engine's log"),
    _verb("stacks", "Look", "stacks of the engine's threads, also when it hangs"),
    _verb("dump", "Look", "a bundle for a bug report: no prompt is in it"),
    _verb("metrics", "Look", "Prometheus text; --listen serves it over HTTP"),
    _verb("probe", "Look", "one line and an exit code: alive, ready, started"),
    _verb("wait", "Look", "until an engine is ready, idle or stopped, or a figure reached"),
    _verb("generate", "Work", "one generation, streamed to stdout"),
    _verb("chat", "Work", "a conversation with the engine's model"),
    _verb("call", "Work", "call a utility of the engine"),
    _verb("abort", "Work", "end requests, and be sure that they are gone"),
    _verb("cordon", "Gate", "refuse new requests, let the others go on"),
    _verb("uncordon", "Gate", "take new requests again; cancels a drain"),
    _verb("pause", "Gate", "stop scheduling; new requests wait"),
    _verb("resume", "Gate", "schedule again after a pause"),
    _verb("sleep", "Gate", "give the memory back, keep the process"),
    _verb("wake", "Gate", "take the memory again after a sleep"),
    _verb("model", "Models and the rest", "list, fetch and convert models", entry="app"),
    _verb("doctor", "Models and the rest", "check this machine; each trouble with its remedy"),
    _verb("config", "Models and the rest", "what a start would use, and from where", module="config_", entry="app"),
    _verb("unit", "Models and the rest", "a systemd unit for an engine"),
    _verb("completion", "Models and the rest", "TAB completion for bash, zsh and fish"),
    _verb("version", "Models and the rest", "versions of the tool and of running engines"),
    _verb("help", "Models and the rest", "explain a verb or an error id", module="help_"),
)
VERBS: dict[str, Verb] = {verb.name: verb for verb in _TABLE}

OTHER_WORDS: dict[str, str] = {
    "serve": "start",
    "launch": "start",
    "up": "start",
    "create": "start",
    "down": "stop",
    "rm": "stop",
    "halt": "stop",
    "shutdown": "stop",
    "terminate": "stop",
    "delete": "stop",
    "list": "ps",
    "ls": "ps",
    "engines": "ps",
    "inspect": "status",
    "describe": "status",
    "show": "status",
    "info": "status",
    "log": "logs",
    "tail": "logs -f",
    "reload": "restart",
    "cancel": "abort",
    "complete": "generate",
    "completions": "completion",
    "rpc": "call",
    "exec": "call",
    "pull": "model fetch",
    "download": "model fetch",
    "models": "model ls",
    "convert": "model convert",
    "fetch": "model fetch",
    "monitor": "top",
    "watch": "top",
    "htop": "top",
    "queue": "requests",
    "reqs": "requests",
    "bench": "generate",
    "ping": "call ping",
    "stats": "call stats",
    "drain-cancel": "uncordon",
}
"""What people type who come from other tools, and what it is called here."""

OTHER_CHILDREN: dict[str, str] = {
    "config set": "enginectl start NAME --set KEY=VALUE",
    "config get": "enginectl config show",
    "config list": "enginectl config show",
    "config ls": "enginectl config show",
    "config edit": "a file enginectl.toml, here or in ~/.config/enginectl: enginectl config check",
    "model rm": "a model is a directory: rm -r the PATH that `enginectl model ls` shows",
    "model delete": "a model is a directory: rm -r the PATH that `enginectl model ls` shows",
    "model list": "enginectl model ls",
    "model pull": "enginectl model fetch",
    "model download": "enginectl model fetch",
}
"""The same for the verbs that have commands of their own: what to do instead."""

GRID = """\
What it does to   new requests   running requests       memory       process
  cordon          refused        go on                  kept         stays
  uncordon        taken again    go on                  kept         stays
  pause           wait           freeze, or --mode      kept         stays
  resume          taken again    go on                  kept         stays
  sleep           wait           end, by --mode         given back   stays
  wake            taken again    -                      taken again  stays
  drain           refused        finish, or aborted     given back   ends, empty
  stop            refused        --grace, then aborted  given back   ends
  kill            fail           fail                   given back   killed
  abort ID        taken          that one ends          its own      stays"""


def nearest(word: str, known: list[str] | tuple[str, ...], *, likeness: float = 0.6) -> str:
    """The known word that was probably meant; empty when none is near. likeness: 0 anything, 1 the word itself."""
    import difflib

    near = difflib.get_close_matches(word, known, n=1, cutoff=likeness)
    return near[0] if near else ""
