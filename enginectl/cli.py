"""The command: argv enters, an exit code leaves. The one error boundary of the tool.

Every failure a verb means ends here as text on stderr (and as the document with `-o json`) and an exit code of the
table in errors.py; a failure nobody meant writes a log with its traceback and ends with 125."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

from enginectl.errors import Bug, CtlError, Exit, UsageError
from enginectl.output import out


class Terminated(BaseException):
    """SIGTERM or SIGHUP reached the command; unwinds it so that terminals and requests are put in order."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    args = list(sys.argv[1:] if argv is None else argv)
    closed = _open_standard_streams()
    os.umask(os.umask(0) & 0o077)  # one that takes our own rights away makes files that nobody can use
    if args == ["--version"]:
        _leave(_ending(_version))
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _terminate)
    out.json = wants_json(args)
    code = _ending(lambda: run(args))
    if closed and code == 0:
        out.say(f"note: {' and '.join(closed)} is closed; what would have been printed there is lost")
    _leave(code)


def run(args: list[str]) -> int:
    """Parses and runs one command line; returns its exit code. Raises CtlError."""
    import typer

    from enginectl.dirs import absolute_places
    from enginectl.group import CONTEXT_SETTINGS, HELP, VerbGroup, click_errors, help_lines, parse_error
    from enginectl.owners import use_own_places

    out.say(*use_own_places())
    os.environ.update(absolute_places())
    args = _strip_global_output(args)
    if not args:
        out.say(*help_lines())
        raise UsageError("no verb given", try_=["enginectl start", "enginectl --help"])
    if args[0] == "--version":
        return _version()
    group = VerbGroup(name="enginectl", rich_markup_mode=None, help=HELP, context_settings=dict(CONTEXT_SETTINGS))
    try:
        with group.make_context("enginectl", args) as ctx:
            result = group.invoke(ctx)
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except click_errors.ClickException as error:
        raise parse_error(error) from None
    return result if isinstance(result, int) else 0


def wants_json(args: Sequence[str]) -> bool:
    """Known before parsing, so that a command line that cannot be parsed is answered in JSON too."""
    chosen = os.environ.get("ENGINECTL_OUTPUT", "")
    own = args[: args.index("--")] if "--" in args else args
    for i, arg in enumerate(own):
        if arg in ("-o", "--output"):
            chosen = own[i + 1] if i + 1 < len(own) else chosen
        elif arg.startswith("--output="):
            chosen = arg.removeprefix("--output=")
        elif arg.startswith("-o") and not arg.startswith("--"):
            chosen = arg[2:].removeprefix("=")
    return chosen == "json"


def _strip_global_output(args: list[str]) -> list[str]:
    """`enginectl -o json ps` is `enginectl ps -o json`. Raises UsageError for a form that there is not."""
    if not args or not args[0].startswith(("-o", "--output")):
        return args
    if args[0] in ("-o", "--output"):
        form, rest = args[1:2], args[2:]
    else:
        form, rest = [args[0].removeprefix("--output").removeprefix("-o").removeprefix("=")], args[1:]
    if form not in (["text"], ["json"]):
        said = f"not {form[0]!r}" if form else "and it is missing"
        raise UsageError(f"--output is text or json, {said}", try_=["enginectl --output json ps", "enginectl --help"])
    return rest


def _version() -> int:
    from enginectl import __version__

    out.text(f"enginectl {__version__}")
    out.document("Version", {"version": __version__})
    return 0


# ---------------------------------------------------------------- the boundary


def _ending(command: Any) -> int:
    """Runs the command; whatever happens becomes an exit code, and words where they can still be written."""
    try:
        try:
            code = int(command())
            sys.stdout.flush()
            return code
        except BaseException as error:
            return _explain(error)
    except BrokenPipeError:
        return _silence(Exit.OK)
    except OSError as error:
        _last_words(f"error[E1502]: cannot write the output: {os.strerror(error.errno or errno.EIO)}")
        return _silence(Exit.USAGE)


def _explain(error: BaseException) -> int:
    """The failure in words and its exit code. Raises what writing the words raises."""
    match error:
        case CtlError():
            out.error(error)
            return int(error.exit)
        case KeyboardInterrupt():
            return _interrupted("interrupted; the engine was left as it is", Exit.INTERRUPTED)
        case Terminated():
            return _interrupted("terminated; the engine was left as it is", Exit.TERMINATED)
        case SystemExit():
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        case BrokenPipeError():
            raise error
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EBADF | errno.EIO):
            raise error
        case _:
            return _explain(_report_bug(error))


def _interrupted(text: str, code: Exit) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out.error(CtlError(text, id="E1901", exit=code))
    return int(code)


def _report_bug(error: BaseException) -> CtlError:
    """Writes the traceback to a file of its own and says where."""
    import secrets
    import tempfile
    import time
    import traceback
    from pathlib import Path

    bug_id = secrets.token_hex(4)
    text = "".join(traceback.format_exception(error))
    name = f"bug-{time.strftime('%Y%m%d-%H%M%S')}-{bug_id}.log"
    path = ""
    for folder in (_bug_folder, lambda: Path(tempfile.mkdtemp(prefix="enginectl-bug-"))):
        with contextlib.suppress(Exception):
            target = folder() / name
            target.write_text(text)
            path = str(target)
            break
    where = f"traceback: {path}" if path else f"no log could be written: {error}"
    return Bug(f"bug {bug_id} in enginectl: {type(error).__name__}: {error}", cause=where)


def _bug_folder() -> Any:
    from enginectl.dirs import STATE_SETTING, make_private, make_root, state_root

    return make_private(make_root(state_root(), STATE_SETTING) / ".bugs", STATE_SETTING)


# ---------------------------------------------------------------- streams and signals


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise Terminated


def _open_standard_streams() -> list[str]:
    """A closed 0, 1 or 2 would be the next file somebody opens: puts /dev/null there. Returns the closed outputs."""
    closed = []
    for fd, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            if fd:
                closed.append(name)
            setattr(sys, name, open(fd, "w" if fd else "r", closefd=False))  # noqa: SIM115
    return closed


def _silence(code: Exit) -> int:
    """Nothing more can be written to stdout: the interpreter must not try at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return int(code)


def _last_words(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _leave(code: int) -> NoReturn:
    """Without running what is left in the interpreter: open zmq contexts and threads are gone with the process."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(code)
