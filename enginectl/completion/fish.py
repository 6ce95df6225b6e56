"""The fish script: one `complete` line for each option, conditions by a function that parses the line once. Pure."""

from __future__ import annotations

from enginectl.completion.values import kind_of_argument, kind_of_option, settings
from enginectl.tree import Command, Option, leaves

HEAD = r"""# fish completion for enginectl. Generated from the command tree; do not edit.
# Engine names, utilities and request ids come from files that supervisors keep; no process is started.

function __enginectl_state
    if test -n "$ENGINECTL_STATE_DIR"
        echo $ENGINECTL_STATE_DIR
    else if test -n "$XDG_STATE_HOME"
        echo $XDG_STATE_HOME/enginectl
    else if test -d "$HOME" -a "$HOME" != /
        echo $HOME/.local/state/enginectl
    else
        echo /tmp/enginectl-$EUID/state
    end
end

function __enginectl_runtime
    if test -n "$ENGINECTL_RUNTIME_DIR"
        echo $ENGINECTL_RUNTIME_DIR
    else if test -n "$XDG_RUNTIME_DIR" -a -O "$XDG_RUNTIME_DIR" -a -w "$XDG_RUNTIME_DIR"
        echo $XDG_RUNTIME_DIR/enginectl
    else
        echo /tmp/enginectl-$EUID
    end
end

# Lines of one file of each running engine that is meant: `owner`, `utilities` or `requests`.
function __enginectl_lines --argument-names file
    __enginectl_parse
    set -l state (__enginectl_state)
    for dir in (__enginectl_runtime)/*/
        test -S $dir/control.sock -a -r $dir/owner; or continue
        set -l owner
        read owner <$dir/owner
        set -l name (string replace -r '.*/' '' -- $owner)
        set -l kept (builtin realpath "$owner" 2>/dev/null)
        set -l here (builtin realpath "$state/engines/$name" 2>/dev/null)
        test -n "$kept" -a "$kept" = "$here"; or continue
        if test $file = owner
            echo $name
        else if test -z "$__enginectl_engine" -o "$__enginectl_engine" = $name; and test -r $dir/$file
            while read -l line
                string match -qr '[[:cntrl:]]' -- $line; or echo $line
            end <$dir/$file
        end
    end
end

function __enginectl_known
    set -l state (__enginectl_state)
    for dir in $state/engines/*/
        if test -e $dir/settings.json -o -e $dir/record.json
            string replace -r '.*/([^/]+)/$' '$1' -- $dir
        end
    end
end

function __enginectl_models
    set -l base $ENGINECTL_CACHE_DIR
    if test -z "$base"
        set base $HOME/.cache/enginectl
        test -n "$XDG_CACHE_HOME"; and set base $XDG_CACHE_HOME/enginectl
    end
    for file in $base/models/*/config.json
        string replace -r '.*/([^/]+)/config.json$' '$1' -- $file
    end
    __fish_complete_path (commandline -ct)
end
"""

PARSE = r"""
# The command that is typed, how many arguments it has so far, and the engine that is named. Once for each line.
function __enginectl_parse
    set -l tokens (commandline -opc)
    test "$tokens" = "$__enginectl_line" -a -n "$__enginectl_line"; and return
    set -g __enginectl_line $tokens
    set -g __enginectl_path
    set -g __enginectl_count 0
    set -g __enginectl_engine $ENGINECTL_ENGINE
    set -l wanted ''
    set -l ended ''
    for token in $tokens[2..]
        if test -n "$wanted"
            contains -- $wanted -e --engine; and set -g __enginectl_engine $token
            set wanted ''
        else if test -n "$ended"; or not string match -q -- '-?*' $token
            set -l longer (string join ' ' -- $__enginectl_path $token)
            if test $__enginectl_count = 0; and contains -- $longer $__enginectl_paths
                set -ga __enginectl_path $token
            else
                set -g __enginectl_count (math $__enginectl_count + 1)
            end
        else if test "$token" = --
            set ended 1
            contains -- "$__enginectl_path" $__enginectl_takers; and set -g __enginectl_path --
        else if string match -q -- '--*=*' $token
            string match -q -- '--engine=*' $token
            and set -g __enginectl_engine (string replace -- --engine= '' $token)
        else if string match -q -- '-e?*' $token
            set -g __enginectl_engine (string replace -- -e '' $token)
        else if contains -- $token (__enginectl_valued "$__enginectl_path")
            set wanted $token
        end
    end
end

function __enginectl_is
    __enginectl_parse
    test "$__enginectl_path" = "$argv[1]"
end

# Is the word at the cursor argument number $argv[2] of this command, or a later one where $argv[3] says so?
function __enginectl_arg
    __enginectl_is $argv[1]; or return
    test $__enginectl_count = $argv[2]; or test -n "$argv[3]" -a $__enginectl_count -gt $argv[2]
end
"""


def render(tree: list[Command]) -> str:
    paths = [command.name for command in tree]
    paths += [child.name for command in tree for child in command.children]
    quoted = " ".join(_quote(path) for path in paths)
    takers = " ".join(_quote(command.name) for command in leaves(tree) if command.takes_rest)
    lists = f"set -g __enginectl_paths {quoted}\nset -g __enginectl_takers {takers}\n"
    parts = [HEAD, _settings(), lists, _valued(tree), PARSE, _global(tree)]
    parts += ["\n".join(_leaf(command)) + "\n" for command in leaves(tree)]
    return "\n".join(parts)


def _settings() -> str:
    words = []
    for name, values in settings().items():
        words += [f"{name}={value}" for value in values] or [f"{name}="]
    return f"function __enginectl_settings\n    string join \\n {' '.join(words)}\nend\n"


def _valued(tree: list[Command]) -> str:
    lines = ["function __enginectl_valued", "    switch $argv[1]", "        case ''", "            echo -o\\n--output"]
    for command in leaves(tree):
        names = [name for option in command.options if option.metavar for name in option.names]
        lines += [f"        case {_quote(command.name)}", f"            string join \\n -- {' '.join(names)}"]
    return "\n".join([*lines, "    end", "end"])


def _global(tree: list[Command]) -> str:
    lines = [
        "complete -c enginectl -f",
        "complete -c enginectl -n \"__enginectl_is ''\" -s o -l output -x -a 'text json' -d 'text, or json'",
        "complete -c enginectl -n \"__enginectl_is ''\" -l version -d 'print the version'",
        "complete -c enginectl -n \"__enginectl_is ''\" -s h -l help -d 'show the help'",
    ]
    for command in tree:
        lines.append(_word("''", command))
        if command.children:
            lines.append(f"complete -c enginectl -n \"__enginectl_is {command.name}\" -s h -l help -d 'show the help'")
            lines += [_word(command.name, child) for child in command.children]
    return "\n".join([*lines, ""])


def _word(path: str, command: Command) -> str:
    condition = f'"__enginectl_arg {path} 0"'
    return f"complete -c enginectl -n {condition} -a {command.path[-1]} -d {_quote(command.summary)}"


def _leaf(command: Command) -> list[str]:
    path = f"'{command.name}'" if len(command.path) > 1 else command.name
    lines = [_option(command, path, option) for option in command.options]
    for i, argument in enumerate(command.arguments):
        later = " more" if argument.repeats else ""
        values = _values(kind_of_argument(command, argument))
        if values:
            lines.append(f'complete -c enginectl -n "__enginectl_arg {path} {i}{later}" {values}')
    return lines


def _option(command: Command, path: str, option: Option) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    value = ""
    if option.metavar:
        value = " -r " + (_values(kind_of_option(command, option)) or "-f")
    text = _quote(option.help.split(" [")[0].rstrip("."))
    return f'complete -c enginectl -n "__enginectl_is {path}" {names}{value} -d {text}'


def _values(kind: str) -> str:
    if kind.startswith("="):
        return f"-f -a '{kind[1:]}'"
    if kind in ("file", "dir"):
        return "-F" if kind == "file" else "-f -a '(__fish_complete_directories (commandline -ct))'"
    call = {
        "engine": "__enginectl_known",
        "running": "__enginectl_lines owner",
        "utility": "__enginectl_lines utilities",
        "request": "__enginectl_lines requests",
        "setting": "__enginectl_settings",
        "model": "__enginectl_models",
    }.get(kind)
    return f"-f -a '({call})'" if call else ""


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
