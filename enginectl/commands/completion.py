"""`enginectl completion`: the script for one shell on stdout, or put where that shell looks for it.

Writes below the user's own directories only, and says where."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from enginectl.errors import UsageError
from enginectl.options import Format, OutputOption
from enginectl.output import out

EXAMPLES = ("enginectl completion bash --install", "enginectl completion zsh > ~/.zfunc/_enginectl")


class ShellName(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def command(
    shell: Annotated[ShellName, typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
    install: Annotated[
        bool, typer.Option("--install", help="Write it where the shell looks, below your own directories.")
    ] = False,
    output: OutputOption = Format.text,
) -> None:
    """Print the completion script of a shell. TAB then knows verbs, options, engines, utilities and request ids."""
    from enginectl.completion import render

    script = render(shell.value)
    if not install:
        out.document("Completion", {"shell": shell.value, "script": script})
        return out.text(script.rstrip("\n"))
    path = place_of(shell.value)
    changed = _write(path, script)
    out.document("Completion", {"shell": shell.value, "path": str(path), "changed": changed})
    out.text(f"{path}{'' if changed else '   (there already)'}")
    out.say(_next_step(shell.value, path))
    return None


def place_of(shell: str) -> Path:
    """Where this user's shell looks. Raises UsageError without a home directory."""
    from enginectl.completion import FILE_NAMES

    home = os.environ.get("HOME", "")
    if shell == "fish":
        base, rest = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "fish/completions"
    elif shell == "bash":
        base, rest = os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share", "bash-completion/completions"
    else:
        base, rest = os.environ.get("XDG_DATA_HOME") or f"{home}/.local/share", "zsh/site-functions"
    folder = Path(base) / rest
    if not folder.is_absolute() or base.startswith("/."):
        raise UsageError(
            "HOME is not set, so nobody knows where to install", try_=[f"enginectl completion {shell} > FILE"]
        )
    return folder / ("enginectl" if shell == "bash" else FILE_NAMES[shell])


def _write(path: Path, script: str) -> bool:
    """False when it says that already. Raises UsageError when it cannot be written."""
    try:
        if path.is_file() and path.read_text(encoding="utf-8") == script:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(script, encoding="utf-8")
        temporary.replace(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot write {path}", cause=str(error)) from None
    return True


def _next_step(shell: str, path: Path) -> str:
    if shell == "zsh":
        return f"put `fpath=({path.parent} $fpath)` before `compinit` in ~/.zshrc, then start a new shell"
    if shell == "bash":
        return f"new shells with the package bash-completion load it; others: source {path}"
    return "new shells load it"
