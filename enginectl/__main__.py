"""The `enginectl` command, and `python -m enginectl`: argv enters, cli.main ends the process.

Imports nothing at its top that the interpreter has not loaded: Ctrl-C while the command's own imports run, before
anything has begun, ends it in silence."""

from __future__ import annotations

import os

INTERRUPTED = 130


def main() -> None:
    """Does not return."""
    try:
        from enginectl.cli import main as run

        run()
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
