"""Completion scripts for bash, zsh and fish, made from the command tree. `render(shell)` is the only entry."""

from __future__ import annotations

from enginectl.completion import bash, fish, zsh
from enginectl.tree import command_tree

SHELLS = ("bash", "zsh", "fish")
FILE_NAMES = {"bash": "enginectl.bash", "zsh": "_enginectl", "fish": "enginectl.fish"}


def render(shell: str) -> str:
    """The whole script for one of SHELLS. Imports every verb."""
    writer = {"bash": bash.render, "zsh": zsh.render, "fish": fish.render}[shell]
    return writer(command_tree())
