"""The bash script: tables of the command tree as one `case`, and functions that run no process.

bash splits words at `=`, `:` and more, so the script splits the line anew at blanks and gives back only what is behind
the last such character. Pure."""

from __future__ import annotations

from enginectl.completion.values import kind_of_argument, kind_of_option, settings
from enginectl.tree import Command, leaves

HEAD = r"""# bash completion for enginectl. Generated from the command tree; do not edit.
# Engine names, utilities and request ids come from files that supervisors keep; no process is started.

__enginectl_roots() {
    if [[ ${ENGINECTL_STATE_DIR-} ]]; then state=${ENGINECTL_STATE_DIR-}
    elif [[ ${XDG_STATE_HOME-} ]]; then state=${XDG_STATE_HOME-}/enginectl
    elif [[ -d ${HOME-} && ${HOME-} != / ]]; then state=${HOME-}/.local/state/enginectl
    else state=/tmp/enginectl-$EUID/state; fi
    if [[ ${ENGINECTL_RUNTIME_DIR-} ]]; then runtime=${ENGINECTL_RUNTIME_DIR-}
    elif [[ ${XDG_RUNTIME_DIR-} && -O $XDG_RUNTIME_DIR && -w $XDG_RUNTIME_DIR ]]; then
        runtime=$XDG_RUNTIME_DIR/enginectl
    else runtime=/tmp/enginectl-$EUID; fi
}

# Lines of one file of each running engine that is meant: `owner`, `utilities` or `requests`.
__enginectl_lines() {
    local dir owner line name=${engine:-${ENGINECTL_ENGINE-}}
    for dir in "$runtime"/*/; do
        owner=
        [[ -S ${dir}control.sock ]] && read -r owner 2>/dev/null <"${dir}owner"
        [[ $owner && $owner -ef $state/engines/${owner##*/} ]] || continue
        if [[ $1 == owner ]]; then
            found+=("${owner##*/}")
        elif [[ -z $name || ${owner##*/} == "$name" ]] && [[ -r $dir$1 ]]; then
            while IFS= read -r line; do found+=("$line"); done <"$dir$1"
        fi
    done
}

__enginectl_known() {
    local dir
    for dir in "$state"/engines/*/; do
        [[ -e ${dir}settings.json || -e ${dir}record.json ]] && dir=${dir%/} && found+=("${dir##*/}")
    done
}

__enginectl_models() {
    local dir base=${ENGINECTL_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME-}/.cache}/enginectl}
    for dir in "$base"/models/*/; do
        [[ -e ${dir}config.json ]] && dir=${dir%/} && found+=("${dir##*/}")
    done
}

# What can stand in the place of a value of kind $1; fills `found`, and `files` or `dirs` where paths can.
__enginectl_kind() {
    local state runtime
    __enginectl_roots
    case $1 in
        engine) __enginectl_known ;;
        running) __enginectl_lines owner ;;
        utility) __enginectl_lines utilities ;;
        request) __enginectl_lines requests ;;
        model) __enginectl_models; files=1 ;;
        file) files=1 ;;
        dir) dirs=1 ;;
        setting) __enginectl_setting ;;
        =*) found=(${1#=}) ;;
    esac
}

# The line up to the cursor as words split at blanks; fills `words`.
__enginectl_split() {
    local rest=${COMP_LINE:0:COMP_POINT} i token last=-1
    for ((i = 0; i <= COMP_CWORD; i++)); do
        token=${COMP_WORDS[i]}
        if [[ $i == 0 || $rest == [[:blank:]]* ]]; then
            rest=${rest#"${rest%%[![:blank:]]*}"}
            words[++last]=
        fi
        ((i == COMP_CWORD)) && token=$rest
        words[last]+=$token
        rest=${rest#"$token"}
    done
}
"""

BODY = r"""
# Which command the words before the cursor name, and what the word at the cursor is.
__enginectl_walk() {
    local i word kind option
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        word=${words[i]}
        if [[ $wanted ]]; then
            [[ $option == -e || $option == --engine ]] && engine=$word
            wanted=
        elif [[ $ended || $word != -* || $word == - ]]; then
            if __enginectl_table "$path $word" subcommand; then
                path="$path $word"
                __enginectl_table "$path"
            else
                ((++count))
            fi
        elif [[ $word == -- ]]; then
            ended=1
        elif [[ $word == --*=* ]]; then
            [[ $word == --engine=* ]] && engine=${word#*=}
        elif [[ $word == -e?* ]]; then
            engine=${word#-e}
        else
            for kind in "${valued[@]}"; do
                [[ $kind == "$word "* ]] && wanted=${kind#* } option=$word
            done
        fi
    done
}

__enginectl_reply() {
    local head= one cut=$1 quote= shown
    [[ $cur == [\'\"]* ]] && quote=${cur:0:1} cut=${cut#"$quote"}
    # readline replaces only what is behind the last character that it splits at
    if [[ -z $quote ]]; then
        local breaks=${COMP_WORDBREAKS//[[:blank:]\"\'$'\n']/}
        [[ $breaks && $cur == *["$breaks"]* ]] && head=${cur%"${cur##*["$breaks"]}"}
    fi
    for one in "${found[@]}"; do
        [[ $one == "$cut"* && $one != *[[:cntrl:]]* ]] || continue
        shown=$before$one
        [[ -z $quote ]] && printf -v shown '%s%q' "$before" "$one"
        shown=${shown#"$head"}
        COMPREPLY+=("$shown")
    done
}

_enginectl() {
    local IFS=$' \t\n' cur path= engine= wanted= ended= foreign= files= dirs= before= word
    local -a words=() found=() flags=() valued=() args=()
    local -i count=0
    COMPREPLY=()
    __enginectl_split
    cur=${words[${#words[@]} - 1]}
    __enginectl_table ""
    __enginectl_walk
    [[ $ended && $foreign ]] && return
    word=$cur
    if [[ $wanted ]]; then
        __enginectl_kind "${wanted#-}"
    elif [[ -z $ended && $cur == --*=* ]]; then
        before=${cur%%=*}= word=${cur#*=}
        local kind
        for kind in "${valued[@]}"; do
            [[ $kind == "${cur%%=*} "* ]] && __enginectl_kind "${kind#* }"
        done
    elif [[ -z $ended && $cur == -* ]]; then
        found=("${flags[@]}" "${valued[@]%% *}")
    elif ((${#args[@]})); then
        local -i last=${#args[@]}-1
        ((count <= last)) && __enginectl_kind "${args[count]%\*}"
        ((count > last)) && [[ ${args[last]} == *\* ]] && __enginectl_kind "${args[last]%\*}"
    fi
    __enginectl_reply "$word"
    if [[ $files || $dirs ]]; then
        local name base=${word/#"~/"/"${HOME-}/"}
        while IFS= read -r name; do
            [[ $word == "~/"* ]] && name="~/${name#"${HOME-}/"}"
            COMPREPLY+=("$name")
        done < <(compgen ${dirs:+-d} ${files:+-f} -- "$base")
        compopt -o filenames 2>/dev/null
    fi
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
}

complete -F _enginectl enginectl
"""


def render(tree: list[Command]) -> str:
    return HEAD + _settings() + _table(tree) + BODY


def _settings() -> str:
    """Names with `=` behind them, and values behind that."""
    known = settings()
    lines = ["", "__enginectl_setting() {", "    case $word in"]
    for name, values in known.items():
        if values:
            full = " ".join(f"{name}={value}" for value in values)
            lines.append(f"        {name}=*) found=({full}) ;;")
    names = " ".join(f"{name}=" for name in known)
    return "\n".join([*lines, "        *=*) ;;", f"        *) found=({names}) ;;", "    esac", "}", ""])


def _table(tree: list[Command]) -> str:
    """`__enginectl_table PATH` fills flags, valued and args; with `subcommand` it only says whether there is one."""
    lines = ["", "__enginectl_table() {", "    case $1 in"]
    verbs = " ".join(command.name for command in tree)
    lines += _case('""', ["--version", "-h", "--help"], ["-o =text json", "--output =text json"], [f"={verbs}"])
    for command in tree:
        if command.children:
            names = " ".join(child.path[-1] for child in command.children)
            lines += _case(f'" {command.name}"', ["-h", "--help"], [], [f"={names}"])
    for command in leaves(tree):
        flags = [name for option in command.options if not option.metavar for name in option.names]
        valued = [
            f"{name} {kind_of_option(command, option) or '-'}"
            for option in command.options
            if option.metavar
            for name in option.names
        ]
        args = [f"{kind_of_argument(command, one) or '-'}{'*' if one.repeats else ''}" for one in command.arguments]
        lines += _case(f'" {command.name}"', flags, valued, args, takes_rest=command.takes_rest)
    return "\n".join([*lines, "        *) return 1 ;;", "    esac", "}", ""])


def _case(pattern: str, flags: list[str], valued: list[str], args: list[str], *, takes_rest: bool = False) -> list[str]:
    def quoted(words: list[str]) -> str:
        return " ".join(f"'{word}'" if not word.replace("-", "").isalnum() else word for word in words)

    return [
        f"        {pattern})",
        "            [[ ${2-} ]] && return",
        *(["            foreign=1"] if takes_rest else []),
        f"            flags=({' '.join(flags)})",
        f"            valued=({quoted(valued)})",
        f"            args=({quoted(args)}) ;;",
    ]
