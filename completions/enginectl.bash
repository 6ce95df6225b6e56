# bash completion for enginectl. Generated from the command tree; do not edit.
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

__enginectl_setting() {
    case $word in
        dtype=*) found=(dtype=auto dtype=float32 dtype=bfloat16 dtype=float16) ;;
        enable_prefix_caching=*) found=(enable_prefix_caching=true enable_prefix_caching=false) ;;
        executor=*) found=(executor=uniproc executor=null) ;;
        device=*) found=(device=auto device=cpu device=cuda) ;;
        kernels=*) found=(kernels=auto kernels=native kernels=eager) ;;
        quantization=*) found=(quantization=none quantization=int8 quantization=int4) ;;
        dialect=*) found=(dialect=auto dialect=0.25 dialect=0.32) ;;
        allow_unsafe_calls=*) found=(allow_unsafe_calls=true allow_unsafe_calls=false) ;;
        log_level=*) found=(log_level=debug log_level=info log_level=warning log_level=error) ;;
        *=*) ;;
        *) found=(model= dtype= max_model_len= max_num_seqs= max_num_batched_tokens= block_size= kv_memory= num_gpu_blocks= enable_prefix_caching= executor= device= kernels= quantization= threads= seed= shutdown_timeout_s= orphan_grace_s= client_byte_budget= dialect= allow_unsafe_calls= log_level=) ;;
    esac
}

__enginectl_table() {
    case $1 in
        "")
            [[ ${2-} ]] && return
            flags=(--version -h --help)
            valued=('-o =text json' '--output =text json')
            args=('=start run drain stop restart kill ps status requests top explain events logs stacks dump metrics probe wait generate chat call abort cordon uncordon pause resume sleep wake model doctor config unit completion version help') ;;
        " model")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=()
            args=('=ls fetch convert') ;;
        " config")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=()
            args=('=show check') ;;
        " start")
            [[ ${2-} ]] && return
            foreign=1
            flags=(-d --detach --foreground --dry-run --allow-remote --hold --no-hold -h --help)
            valued=('--model model' '--set setting' '--gpus -' '--restart =no on-failure always' '--python file' '--timeout -' '--join -' '--engine =enginectl vllm' '--hold-limit -' '--hold-sampled =resume fail' '-e engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " run")
            [[ ${2-} ]] && return
            foreign=1
            flags=(--allow-remote --hold --no-hold -h --help)
            valued=('--model model' '--set setting' '--gpus -' '--restart =no on-failure always' '--python file' '--join -' '--engine =enginectl vllm' '--hold-limit -' '--hold-sampled =resume fail' '-e engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " drain")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('--grace -' '--on-timeout =abort fail' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " stop")
            [[ ${2-} ]] && return
            flags=(--all -y --yes -h --help)
            valued=('--grace -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=('running*') ;;
        " restart")
            [[ ${2-} ]] && return
            flags=(--hold -y --yes -h --help)
            valued=('--grace -' '--timeout -' '--hold-limit -' '--hold-sampled =resume fail' '-e engine' '--engine engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " kill")
            [[ ${2-} ]] && return
            flags=(-y --yes -h --help)
            valued=('-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " ps")
            [[ ${2-} ]] && return
            flags=(--running -h --help)
            valued=('-o =text json' '--output =text json')
            args=() ;;
        " status")
            [[ ${2-} ]] && return
            flags=(--exit-status -h --help)
            valued=('-p =schema kind name state reason instance model engine supervisor.pid supervisor.start_time supervisor.cpu_percent supervisor.rss_bytes process.pid process.start_time process.cpu_percent process.rss_bytes gpus started_at uptime_s ready_after_s last_ready_after_s phases ready.max_model_len ready.num_gpu_blocks ready.block_size ready.dp_stats_address ready.dtype ready.vllm_version ready.world_size ready.data_parallel_size ready.kv_cache_size_tokens ready.kv_cache_max_concurrency ready.tensor_parallel_size ready.pipeline_parallel_size ready.decode_context_parallel_size ready.data_parallel_rank ready.max_num_seqs ready.max_num_batched_tokens ready.instance_id ready.supports_lora ready.max_loras ready.mamba_block_size ready.kv_events_config ready.weight_transfer_backend ready.enable_sleep_mode ready.supports_draft_weight_updates ready.effective_attention_block_size asked cordoned drain.began_s_ago drain.grace_s drain.running drain.waiting drain.tokens_left drain.tok_s drain.eta_s drain.worst_id drain.worst_eta_s drain.will_miss stats.window_s stats.running stats.waiting stats.skipped stats.kv_used_ratio stats.kv_blocks stats.kv_used_blocks stats.prefix_hit_ratio stats.decode_tok_s stats.prefill_tok_s stats.requests_in_s stats.preempted_per_min stats.ttft_p50_s stats.ttft_p95_s stats.tpot_p50_ms stats.tpot_p95_ms stats.step stats.step_counter stats.loop_counter stats.loop_age_s stats.input_queue stats.output_queue stats.rejected_messages stats.dropped_outputs stats.finished_total stats.aborted_total stats.failed_total stats.tokens_total stats.history restarts restart_policy next_restart_in_s returns last_exit.code last_exit.signal last_exit.cause last_exit.phase last_exit.at last_exit.requested last_exit.evidence last_exit.step last_exit.running last_exit.waiting last_exit.aborted last_exit.up_s frontend http held held_s metrics log supervisor_version observed_at' '--property =schema kind name state reason instance model engine supervisor.pid supervisor.start_time supervisor.cpu_percent supervisor.rss_bytes process.pid process.start_time process.cpu_percent process.rss_bytes gpus started_at uptime_s ready_after_s last_ready_after_s phases ready.max_model_len ready.num_gpu_blocks ready.block_size ready.dp_stats_address ready.dtype ready.vllm_version ready.world_size ready.data_parallel_size ready.kv_cache_size_tokens ready.kv_cache_max_concurrency ready.tensor_parallel_size ready.pipeline_parallel_size ready.decode_context_parallel_size ready.data_parallel_rank ready.max_num_seqs ready.max_num_batched_tokens ready.instance_id ready.supports_lora ready.max_loras ready.mamba_block_size ready.kv_events_config ready.weight_transfer_backend ready.enable_sleep_mode ready.supports_draft_weight_updates ready.effective_attention_block_size asked cordoned drain.began_s_ago drain.grace_s drain.running drain.waiting drain.tokens_left drain.tok_s drain.eta_s drain.worst_id drain.worst_eta_s drain.will_miss stats.window_s stats.running stats.waiting stats.skipped stats.kv_used_ratio stats.kv_blocks stats.kv_used_blocks stats.prefix_hit_ratio stats.decode_tok_s stats.prefill_tok_s stats.requests_in_s stats.preempted_per_min stats.ttft_p50_s stats.ttft_p95_s stats.tpot_p50_ms stats.tpot_p95_ms stats.step stats.step_counter stats.loop_counter stats.loop_age_s stats.input_queue stats.output_queue stats.rejected_messages stats.dropped_outputs stats.finished_total stats.aborted_total stats.failed_total stats.tokens_total stats.history restarts restart_policy next_restart_in_s returns last_exit.code last_exit.signal last_exit.cause last_exit.phase last_exit.at last_exit.requested last_exit.evidence last_exit.step last_exit.running last_exit.waiting last_exit.aborted last_exit.up_s frontend http held held_s metrics log supervisor_version observed_at' '-e engine' '--engine engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " requests")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('-n -' '--limit -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " top")
            [[ ${2-} ]] && return
            flags=(--once --stream --allow-actions --ascii -h --help)
            valued=('-n -' '--count -' '--replay file' '-i -' '--interval -' '-e engine' '--engine engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " explain")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('-e running' '--engine running' '-o =text json' '--output =text json')
            args=(request) ;;
        " events")
            [[ ${2-} ]] && return
            flags=(-f --follow -h --help)
            valued=('-n -' '--limit -' '-e engine' '--engine engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " logs")
            [[ ${2-} ]] && return
            flags=(-f --follow --previous --supervisor -h --help)
            valued=('-n -' '--lines -' '-e engine' '--engine engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " stacks")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('--timeout -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " dump")
            [[ ${2-} ]] && return
            flags=(--logs --no-logs -h --help)
            valued=('--out file' '--timeout -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " metrics")
            [[ ${2-} ]] && return
            flags=(--allow-remote -h --help)
            valued=('--listen -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " probe")
            [[ ${2-} ]] && return
            flags=(--liveness --readiness --startup -h --help)
            valued=('--timeout -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " wait")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('--for =ready idle stopped' '--timeout -' '-e engine' '--engine engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " generate")
            [[ ${2-} ]] && return
            flags=(--ignore-eos --ids --stream -h --help)
            valued=('--max-tokens -' '--min-tokens -' '--temperature -' '--top-p -' '--top-k -' '--min-p -' '--seed -' '--stop -' '--stop-token-id -' '--logprobs -' '--presence-penalty -' '--frequency-penalty -' '--repetition-penalty -' '--logit-bias -' '--priority -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=('-') ;;
        " chat")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('--system -' '--max-tokens -' '--temperature -' '--top-p -' '--top-k -' '--min-p -' '--seed -' '--stop -' '--repetition-penalty -' '--priority -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=('-') ;;
        " call")
            [[ ${2-} ]] && return
            flags=(--list --describe -y --yes -h --help)
            valued=('--arg -' '--args-json -' '--timeout -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(utility '-*') ;;
        " abort")
            [[ ${2-} ]] && return
            flags=(--all -y --yes -h --help)
            valued=('--older -' '--timeout -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=('request*') ;;
        " cordon")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " uncordon")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " pause")
            [[ ${2-} ]] && return
            flags=(-y --yes -h --help)
            valued=('--mode =keep wait abort' '--timeout -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " resume")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " sleep")
            [[ ${2-} ]] && return
            flags=(-y --yes -h --help)
            valued=('--level =1 2' '--mode =wait abort' '--timeout -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " wake")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('--timeout -' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " model ls")
            [[ ${2-} ]] && return
            flags=(--help)
            valued=('-o =text json' '--output =text json')
            args=() ;;
        " model fetch")
            [[ ${2-} ]] && return
            flags=(--help)
            valued=('--python file' '-o =text json' '--output =text json')
            args=('=smollm2-135m-instruct') ;;
        " model convert")
            [[ ${2-} ]] && return
            flags=(--help)
            valued=('--dtype =bfloat16 float16 float32' '--python file' '-o =text json' '--output =text json')
            args=(file dir) ;;
        " doctor")
            [[ ${2-} ]] && return
            flags=(--strict -h --help)
            valued=('--python file' '-e running' '--engine running' '-o =text json' '--output =text json')
            args=(running) ;;
        " config show")
            [[ ${2-} ]] && return
            flags=(--origin --changed --help)
            valued=('--model model' '--set setting' '-e engine' '--engine engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " config check")
            [[ ${2-} ]] && return
            flags=(--help)
            valued=('-o =text json' '--output =text json')
            args=('file*') ;;
        " unit")
            [[ ${2-} ]] && return
            flags=(--system -h --help)
            valued=('-e engine' '--engine engine' '-o =text json' '--output =text json')
            args=(engine) ;;
        " completion")
            [[ ${2-} ]] && return
            flags=(--install -h --help)
            valued=('-o =text json' '--output =text json')
            args=('=bash zsh fish') ;;
        " version")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('-o =text json' '--output =text json')
            args=() ;;
        " help")
            [[ ${2-} ]] && return
            flags=(-h --help)
            valued=('-o =text json' '--output =text json')
            args=('=start run drain stop restart kill ps status requests top explain events logs stacks dump metrics probe wait generate chat call abort cordon uncordon pause resume sleep wake model doctor config unit completion version help E1000 E1001 E1101 E1102 E1103 E1104 E1105 E1106 E1201 E1202 E1203 E1204 E1205 E1301 E1302 E1303 E1304 E1305 E1306 E1403 E1410 E1411 E1501 E1502 E1901 E1999') ;;
        *) return 1 ;;
    esac
}

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
