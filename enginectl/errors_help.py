"""What `enginectl help ERROR-ID` says: for each error id what it means and what to do. Read only."""

from __future__ import annotations

from typing import NamedTuple

from enginectl.errors import Exit


class ErrorHelp(NamedTuple):
    exit: Exit
    title: str
    meaning: str
    do: str


ERRORS: dict[str, ErrorHelp] = {
    "E1000": ErrorHelp(
        Exit.ENGINE_ERROR,
        "the engine answered with an error",
        "The request reached the engine or its supervisor and failed there; the message is theirs.",
        "Read the cause; `enginectl logs NAME -n 50` has the lines around it.",
    ),
    "E1001": ErrorHelp(
        Exit.USAGE,
        "the command line or a config file is wrong",
        "An unknown verb, option, setting or value. Nothing was done.",
        "`enginectl VERB --help` shows what a verb takes; `enginectl --help` lists the verbs.",
    ),
    "E1101": ErrorHelp(
        Exit.NOT_RUNNING,
        "the engine is not running",
        "The name is known (its settings are recorded), but no process of it is alive.",
        "`enginectl start NAME` starts it with the recorded settings; `enginectl status NAME` says how it ended.",
    ),
    "E1102": ErrorHelp(
        Exit.NOT_FOUND,
        "no engine of that name",
        "No engine of that name was ever started by this user in this state directory.",
        "`enginectl ps` lists the known names. Engines of another user or of another ENGINECTL_STATE_DIR are not seen.",
    ),
    "E1103": ErrorHelp(
        Exit.NOT_FOUND,
        "no such request",
        "No request in flight has that id, or an id that begins so. It may have finished.",
        "`enginectl requests NAME` lists what is in flight.",
    ),
    "E1104": ErrorHelp(
        Exit.NOT_FOUND,
        "no such utility",
        "The engine has no utility of that name.",
        "`enginectl call --list` shows the table of this engine.",
    ),
    "E1105": ErrorHelp(
        Exit.WRONG_STATE,
        "the engine's state does not allow it",
        "It is starting, draining, sleeping or stopping, and this verb needs another state; or it has as many callers "
        "as its supervisor may open files for.",
        "`enginectl status NAME` shows the state; `enginectl wait NAME --for ready` waits for it.",
    ),
    "E1106": ErrorHelp(
        Exit.REFUSED,
        "refused",
        "The verb destroys something and was not confirmed, or the call is unsafe and not permitted.",
        "Add --yes, or for unsafe calls start the engine with --set allow_unsafe_calls=true.",
    ),
    "E1201": ErrorHelp(
        Exit.CONFLICT,
        "conflict",
        "The name is taken by an engine with other settings, a lock is held, or the versions of the "
        "command and the running supervisor do not fit.",
        "Stop that engine, restart it with the new settings, or use another name.",
    ),
    "E1202": ErrorHelp(
        Exit.CONFLICT,
        "the supervisor is of another version",
        "The command was replaced while the engine ran on under its old supervisor, which does not know this verb. "
        "`status`, `drain` and `stop` work with every version.",
        "`enginectl drain NAME`, then `enginectl start NAME`: the new supervisor has the same settings.",
    ),
    "E1203": ErrorHelp(
        Exit.START_FAILED,
        "the start failed before READY",
        "The engine process ended, or did not become ready in time; a model that turns out to be corrupt while it "
        "loads is one reason. The message names the phase, the cause is the first real error.",
        "Read the cause; `enginectl logs NAME --previous -n 50` has the rest. `enginectl start NAME "
        "--dry-run` does the arithmetic of memory without loading weights.",
    ),
    "E1204": ErrorHelp(
        Exit.START_FAILED,
        "the interpreter cannot run an engine",
        "The engine needs torch, numpy and safetensors; the chosen interpreter has not all of them.",
        "`pip install 'enginectl[engine]'` into it, or name another one with --python PATH.",
    ),
    "E1205": ErrorHelp(
        Exit.USAGE,
        "the model cannot be used",
        "Seen before anything is started: the directory or file is missing something, or is of a kind that is not "
        "built in. What only the engine sees while it loads, a corrupt weight file say, is a failed start: E1203.",
        "The message names the file. `enginectl model ls` lists models that are ready to use.",
    ),
    "E1301": ErrorHelp(
        Exit.ENGINE_DIED,
        "the engine died",
        "Its process ended, or it said that it is dead, while the command waited for it.",
        "`enginectl status NAME` is the post-mortem; `enginectl logs NAME --previous` the log.",
    ),
    "E1302": ErrorHelp(
        Exit.ENGINE_ERROR,
        "the utility failed",
        "The engine ran the utility, and it raised an error.",
        "Read the cause; `enginectl call --describe UTILITY` shows the arguments.",
    ),
    "E1303": ErrorHelp(
        Exit.ENGINE_ERROR,
        "the generation failed",
        "The engine refused the request or ended it with an error.",
        "Read the cause: a prompt that is too long, a value out of range, an abort by an operator.",
    ),
    "E1304": ErrorHelp(
        Exit.STALLED,
        "the engine is stalled",
        "Its loop did not turn for longer than the tokens of the step explain, and it gained no CPU time.",
        "`enginectl stacks NAME` shows where it hangs; `enginectl restart NAME` replaces it.",
    ),
    "E1305": ErrorHelp(
        Exit.PARTIAL,
        "some targets failed",
        "Several targets were named and not all succeeded.",
        "-o json has the outcome of each.",
    ),
    "E1306": ErrorHelp(
        Exit.NOT_RUNNING,
        "the engine is not healthy",
        "`status --exit-status` judged an engine that is not running.",
        "`enginectl status NAME` says why.",
    ),
    "E1403": ErrorHelp(
        Exit.DEADLINE,
        "a deadline was reached",
        "The message names which wait it was. The engine was left as it is; a supervisor that does not answer at all "
        "is E1411.",
        "`enginectl status NAME` says whether it is busy or stalled; --timeout waits longer.",
    ),
    "E1410": ErrorHelp(
        Exit.ENGINE_DIED,
        "the condition can no longer become true",
        "The engine ended, failed or is stopping, so waiting on is pointless.",
        "`enginectl status NAME` says how it ended.",
    ),
    "E1411": ErrorHelp(
        Exit.UNREACHABLE,
        "the supervisor cannot be reached",
        "Its process is there, but it is stopped, hangs, or its control socket is missing. What was written down "
        "earlier is not believed meanwhile: the state is `unreachable`.",
        "A missing runtime directory comes back within 5 s, a stopped process goes on after kill -CONT; else "
        "`enginectl kill NAME` ends supervisor and engine.",
    ),
    "E1501": ErrorHelp(
        Exit.USAGE,
        "the state or runtime directory cannot be used",
        "It is not yours, is readable by others, cannot be created, or its path is too long for a socket (107 bytes). "
        "Only `start` has to write there; looking and stopping work in one that is mounted read-only. In the directory "
        "of another user no verb says anything of engines, root's included: `sudo -u OWNER enginectl ...` does.",
        "Set ENGINECTL_RUNTIME_DIR or ENGINECTL_STATE_DIR to a short directory that is yours alone.",
    ),
    "E1502": ErrorHelp(
        Exit.USAGE,
        "the output cannot be written",
        "The device is full or the file was closed.",
        "Whatever the verb did is done; run `enginectl status` to see it.",
    ),
    "E1901": ErrorHelp(
        Exit.INTERRUPTED,
        "interrupted",
        "Ctrl-C or TERM ended the command.",
        "The engine was left as it is; `enginectl status NAME` shows it.",
    ),
    "E1999": ErrorHelp(
        Exit.BUG,
        "a bug in enginectl",
        "Something happened that the tool did not expect.",
        "The message names a log file with the traceback; please report it.",
    ),
}


def explain(error_id: str) -> list[str]:
    """The lines of one error's help. KeyError when there is no such id."""
    entry = ERRORS[error_id]
    return [f"{error_id}  {entry.title}  (exit {int(entry.exit)})", "", f"  {entry.meaning}", f"  {entry.do}"]
