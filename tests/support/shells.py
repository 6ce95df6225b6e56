"""The three real shells at a pseudo-terminal (fish by its own `complete -C`): a line in, its candidates out.

A shell that is not installed skips the test with the reason; bash is always there."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.wait import wait_until

BASH = r"""
PS1='' HISTFILE=
bind 'set bell-style none'
bind 'set completion-query-items -1'
bind '"\C-xa": insert-completions'
__dump() {
    printf '%s' "$READLINE_LINE" >"$DUMP.new" && command mv "$DUMP.new" "$DUMP"
    READLINE_LINE='' READLINE_POINT=0
}
bind -x '"\C-xd": __dump'
bind '"\C-xt": complete'
source "$SCRIPT"
set -u
"""
ZSH = r"""
PS1='' HISTFILE= KEYTIMEOUT=20
unsetopt beep list_beep zle_bracketed_paste
fpath=($FOLDER $fpath)
autoload -Uz compinit; compinit -u -D
zle -C all-matches complete-word _all_generic
_all_generic() { _generic "$@" }
zstyle ':completion:all-matches:*' completer _all_matches _complete
zstyle ':completion:all-matches:*' insert true
bindkey '^Xa' all-matches
__dump() { printf '%s' "$BUFFER" >"$DUMP.new" && command mv "$DUMP.new" "$DUMP"; BUFFER= }
zle -N __dump; bindkey '^Xd' __dump
bindkey '^Xt' complete-word
"""
READY = "touch $DUMP.ready\n"


def need(shell: str) -> str:
    found = shutil.which(shell)
    if found is None and shell == "bash":
        pytest.fail("bash is not there, and everything else in a checkout needs it")
    if found is None:
        pytest.skip(f"no {shell} on this machine")
    return found


class Shell:
    """One interactive bash or zsh with the script loaded."""

    def __init__(self, shell: str, script: Path, folder: Path, env: dict[str, str]) -> None:
        self.dump = folder / f"dump-{shell}"
        rc = folder / f"rc-{shell}"
        rc.write_text(BASH if shell == "bash" else ZSH)
        found = need(shell)
        argv = [found, "--noprofile", "--norc", "-i"] if shell == "bash" else [found, "-f", "-i"]
        environ = env | {"DUMP": str(self.dump), "SCRIPT": str(script), "FOLDER": str(script.parent), "TERM": "vt100"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(found, argv, environ)
        self.type(f". {shlex.quote(str(rc))}; {READY}")
        self._until(Path(f"{self.dump}.ready"))

    def type(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def candidates(self, line: str) -> list[str]:
        """The words that could stand where the cursor is at the end of `line`. zsh writes `--option=` for one with
        a value, bash gives back only what is behind a `=`; both are told here as whole words."""
        whole = self.press(line, "\x18a")
        head = line[: len(line) - len(line.rpartition(" ")[2])]
        assert whole.startswith(head), whole
        words = shlex.split(whole[len(head) :])
        stem = line[len(head) :].rstrip("\"'")
        stem = stem[: max((stem.rfind(char) for char in "=:@"), default=-1) + 1]
        if whole == line:
            return []
        words = [
            word[:-1] if word.startswith("--") and word.count("=") == 1 and word.endswith("=") else word
            for word in words
        ]
        return [word if word.startswith(stem) else stem + word for word in words]

    def press(self, line: str, keys: str = "\x18t") -> str:
        """What the line has become after a key, TAB if nothing else is said."""
        self.dump.unlink(missing_ok=True)
        self.type(line + keys + "\x18d")
        self._until(self.dump)
        return self.dump.read_text()

    def _until(self, path: Path) -> None:
        wait_until(lambda: self._drain() or path.exists(), 20.0, f"the shell to write {path.name}")

    def _drain(self) -> bool:
        """Reads what the shell draws, so that it never blocks."""
        while select.select([self.fd], [], [], 0)[0]:
            try:
                if not os.read(self.fd, 65536):
                    break
            except OSError:
                break
        return False

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class Fish:
    def __init__(self, script: Path, folder: Path, env: dict[str, str]) -> None:
        self.found = need("fish")
        self.script, self.folder = script, folder
        self.env = env | {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_DATA_HOME": str(folder / "data")}

    def candidates(self, line: str) -> list[str]:
        code = f"source {shlex.quote(str(self.script))}; complete -C $argv[1]"
        done = subprocess.run(
            [self.found, "--no-config", "-c", code, line], env=self.env, cwd=self.folder, text=True,
            capture_output=True, timeout=30, check=True,
        )  # fmt: skip
        assert not done.stderr, done.stderr
        return [row.split("\t")[0] for row in done.stdout.splitlines()]

    def close(self) -> None:
        pass


def open_shell(shell: str, folder: Path, env: dict[str, str], scripts: dict[str, Path]) -> Shell | Fish:
    return Fish(scripts[shell], folder, env) if shell == "fish" else Shell(shell, scripts[shell], folder, env)
