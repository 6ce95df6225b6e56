"""The zsh script: one `_arguments` call for each command, and functions that run no process. Pure."""

from __future__ import annotations

from enginectl.completion.values import kind_of_argument, kind_of_option, settings
from enginectl.tree import Argument, Command, Option

HEAD = r"""#compdef enginectl
# zsh completion for enginectl. Generated from the command tree; do not edit.
# Engine names, utilities and request ids come from files that supervisors keep; no process is started.

(( $+functions[_enginectl_roots] )) || _enginectl_roots() {
    if [[ -n $ENGINECTL_STATE_DIR ]]; then state_root=$ENGINECTL_STATE_DIR
    elif [[ -n $XDG_STATE_HOME ]]; then state_root=$XDG_STATE_HOME/enginectl
    elif [[ -d $HOME && $HOME != / ]]; then state_root=$HOME/.local/state/enginectl
    else state_root=/tmp/enginectl-$EUID/state; fi
    if [[ -n $ENGINECTL_RUNTIME_DIR ]]; then runtime_root=$ENGINECTL_RUNTIME_DIR
    elif [[ -n $XDG_RUNTIME_DIR && -O $XDG_RUNTIME_DIR && -w $XDG_RUNTIME_DIR ]]; then
        runtime_root=$XDG_RUNTIME_DIR/enginectl
    else runtime_root=/tmp/enginectl-$EUID; fi
}

# Lines of one file of each running engine that is meant: `owner`, `utilities` or `requests`.
(( $+functions[_enginectl_lines] )) || _enginectl_lines() {
    local state_root runtime_root dir owner name=${opt_args[-e]:-${opt_args[--engine]:-$ENGINECTL_ENGINE}}
    name=${(Q)name}
    _enginectl_roots
    for dir in $runtime_root/*(N/); do
        owner=
        [[ -S $dir/control.sock && -r $dir/owner ]] && IFS= read -r owner <$dir/owner
        [[ -n $owner && $owner -ef $state_root/engines/${owner:t} ]] || continue
        if [[ $1 == owner ]]; then
            found+=(${owner:t})
        elif [[ ( -z $name || ${owner:t} == $name ) && -r $dir/$1 ]]; then
            found+=(${(f)"$(<$dir/$1)"})
        fi
    done
    found=(${found:#*[[:cntrl:]]*})
}

(( $+functions[_enginectl_running] )) || _enginectl_running() {
    local -a found
    _enginectl_lines owner
    _wanted engines expl 'running engine' compadd -a found
}

(( $+functions[_enginectl_utility] )) || _enginectl_utility() {
    local -a found
    _enginectl_lines utilities
    _wanted utilities expl utility compadd -a found
}

(( $+functions[_enginectl_request] )) || _enginectl_request() {
    local -a found
    _enginectl_lines requests
    _wanted requests expl 'request id' compadd -a found
}

(( $+functions[_enginectl_engine] )) || _enginectl_engine() {
    local state_root runtime_root
    local -a found
    _enginectl_roots
    found=($state_root/engines/*/(settings|record).json(N:h:t))
    found=(${(u)found})
    _wanted engines expl engine compadd -a found
}

(( $+functions[_enginectl_model] )) || _enginectl_model() {
    local -a found
    found=(${ENGINECTL_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/enginectl}/models/*/config.json(N:h:t))
    _alternative 'models:model:compadd -a found' 'files:file:_files'
}
"""


def render(tree: list[Command]) -> str:
    parts = [HEAD, _settings(), _commands("_enginectl_verbs", tree)]
    parts += [
        _commands(f"_enginectl_{command.path[0]}_commands", command.children) for command in tree if command.children
    ]
    return "\n".join([*parts, _main(tree)])


def _settings() -> str:
    known = settings()
    names = " ".join(known)
    lines = ["(( $+functions[_enginectl_setting] )) || _enginectl_setting() {", "    if compset -P '*='; then"]
    lines += ["        case ${IPREFIX##*[[:blank:]]} in"]
    for name, values in known.items():
        if values:
            lines.append(f"            *{name}=) compadd -- {' '.join(values)} ;;")
    lines += ["        esac", "    else", f"        compadd -S = -- {names}", "    fi", "}", ""]
    return "\n".join(lines)


def _commands(function: str, commands: tuple[Command, ...] | list[Command]) -> str:
    rows = [f"        '{command.path[-1]}:{_escape(command.summary)}'" for command in commands]
    return "\n".join(
        [f"(( $+functions[{function}] )) || {function}() {{", "    local -a commands=(", *rows, "    )",
         "    _describe -t commands command commands", "}", ""]
    )  # fmt: skip


def _main(tree: list[Command]) -> str:
    lines = [
        "_enginectl() {",
        '    local curcontext="$curcontext" context state line expl ret=1',
        "    typeset -A opt_args",
        "    _arguments -C \\",
        "        '(-o --output)'{-o+,--output=}'[text, or json]:format:(text json)' \\",
        "        '--version[print the version]' \\",
        "        '(- *)'{-h,--help}'[show the help]' \\",
        "        '1:verb:_enginectl_verbs' \\",
        "        '*::argument:->verb' && ret=0",
        "    [[ $state == verb ]] || return ret",
        '    curcontext="${curcontext%:*:*}:enginectl-$words[1]:"',
        "    case $words[1] in",
    ]
    for command in tree:
        lines += _group(command) if command.children else _leaf(command, " " * 8)
    return "\n".join([*lines, "    esac", "    return ret", "}", "", '_enginectl "$@"', ""])


def _group(command: Command) -> list[str]:
    name = command.path[0]
    lines = [
        f"        {name})",
        "            _arguments -C \\",
        "                '(- *)'{-h,--help}'[show the help]' \\",
        f"                '1:command:_enginectl_{name}_commands' \\",
        "                '*::argument:->command' && ret=0",
        "            [[ $state == command ]] || return ret",
        "            case $words[1] in",
    ]
    for child in command.children:
        lines += _leaf(child, " " * 16)
    return [*lines, "            esac ;;"]


def _leaf(command: Command, indent: str) -> list[str]:
    specs = [spec for option in command.options for spec in _option(command, option)]
    specs += [_argument(command, one, i) for i, one in enumerate(command.arguments, 1)]
    rows = [f"{indent}        {spec} \\" for spec in specs[:-1]] + [f"{indent}        {specs[-1]} && ret=0 ;;"]
    rest = [f"{indent}    (( $words[(i)--] < CURRENT )) && return 1"] if command.takes_rest else []
    return [f"{indent}{command.path[-1]})", *rest, f"{indent}    _arguments -s -S \\", *rows]


def _option(command: Command, option: Option) -> list[str]:
    lead = "*" if option.repeats else f"({' '.join(option.names)})"
    if option.names[-1] == "--help":
        lead = "(- *)"
    text = _escape(option.help.split(" [")[0].rstrip("."))
    if not option.metavar:
        return [f"'{lead}{name}[{text}]'" for name in option.names]
    value = f":{_escape(option.metavar)}:{_action(kind_of_option(command, option))}"
    return [f"'{lead}{name}{'=' if name.startswith('--') else '+'}[{text}]{value}'" for name in option.names]


def _argument(command: Command, argument: Argument, place: int) -> str:
    where = "*:" if argument.repeats else f"{place}:" if argument.required else f"{place}::"
    return f"'{where}{_escape(argument.metavar)}:{_action(kind_of_argument(command, argument))}'"


def _action(kind: str) -> str:
    if kind.startswith("="):
        return f"({kind[1:]})"
    return {"": " ", "file": "_files", "dir": "_files -/"}.get(kind, f"_enginectl_{kind}")


def _escape(text: str) -> str:
    for char in "\\[]:":
        text = text.replace(char, "\\" + char)
    return text.replace("'", "'\\''").replace("`", "")
