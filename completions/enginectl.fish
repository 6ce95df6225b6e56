# fish completion for enginectl. Generated from the command tree; do not edit.
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

function __enginectl_settings
    string join \n model= dtype=auto dtype=float32 dtype=bfloat16 dtype=float16 max_model_len= max_num_seqs= max_num_batched_tokens= block_size= kv_memory= num_gpu_blocks= enable_prefix_caching=true enable_prefix_caching=false executor=uniproc executor=null device=auto device=cpu device=cuda kernels=auto kernels=native kernels=eager quantization=none quantization=int8 quantization=int4 threads= seed= shutdown_timeout_s= orphan_grace_s= client_byte_budget= dialect=auto dialect=0.25 dialect=0.32 allow_unsafe_calls=true allow_unsafe_calls=false log_level=debug log_level=info log_level=warning log_level=error
end

set -g __enginectl_paths 'start' 'run' 'drain' 'stop' 'restart' 'kill' 'ps' 'status' 'requests' 'top' 'explain' 'events' 'logs' 'stacks' 'dump' 'metrics' 'probe' 'wait' 'generate' 'chat' 'call' 'abort' 'cordon' 'uncordon' 'pause' 'resume' 'sleep' 'wake' 'model' 'doctor' 'config' 'unit' 'completion' 'version' 'help' 'model ls' 'model fetch' 'model convert' 'config show' 'config check'
set -g __enginectl_takers 'start' 'run'

function __enginectl_valued
    switch $argv[1]
        case ''
            echo -o\n--output
        case 'start'
            string join \n -- --model --set --gpus --restart --python --timeout --join --engine --hold-limit --hold-sampled -e -o --output
        case 'run'
            string join \n -- --model --set --gpus --restart --python --join --engine --hold-limit --hold-sampled -e -o --output
        case 'drain'
            string join \n -- --grace --on-timeout -e --engine -o --output
        case 'stop'
            string join \n -- --grace -e --engine -o --output
        case 'restart'
            string join \n -- --grace --timeout --hold-limit --hold-sampled -e --engine -o --output
        case 'kill'
            string join \n -- -e --engine -o --output
        case 'ps'
            string join \n -- -o --output
        case 'status'
            string join \n -- -p --property -e --engine -o --output
        case 'requests'
            string join \n -- -n --limit -e --engine -o --output
        case 'top'
            string join \n -- -n --count --replay -i --interval -e --engine -o --output
        case 'explain'
            string join \n -- -e --engine -o --output
        case 'events'
            string join \n -- -n --limit -e --engine -o --output
        case 'logs'
            string join \n -- -n --lines -e --engine -o --output
        case 'stacks'
            string join \n -- --timeout -e --engine -o --output
        case 'dump'
            string join \n -- --out --timeout -e --engine -o --output
        case 'metrics'
            string join \n -- --listen -e --engine -o --output
        case 'probe'
            string join \n -- --timeout -e --engine -o --output
        case 'wait'
            string join \n -- --for --timeout -e --engine -o --output
        case 'generate'
            string join \n -- --max-tokens --min-tokens --temperature --top-p --top-k --min-p --seed --stop --stop-token-id --logprobs --presence-penalty --frequency-penalty --repetition-penalty --logit-bias --priority -e --engine -o --output
        case 'chat'
            string join \n -- --system --max-tokens --temperature --top-p --top-k --min-p --seed --stop --repetition-penalty --priority -e --engine -o --output
        case 'call'
            string join \n -- --arg --args-json --timeout -e --engine -o --output
        case 'abort'
            string join \n -- --older --timeout -e --engine -o --output
        case 'cordon'
            string join \n -- -e --engine -o --output
        case 'uncordon'
            string join \n -- -e --engine -o --output
        case 'pause'
            string join \n -- --mode --timeout -e --engine -o --output
        case 'resume'
            string join \n -- -e --engine -o --output
        case 'sleep'
            string join \n -- --level --mode --timeout -e --engine -o --output
        case 'wake'
            string join \n -- --timeout -e --engine -o --output
        case 'model ls'
            string join \n -- -o --output
        case 'model fetch'
            string join \n -- --python -o --output
        case 'model convert'
            string join \n -- --dtype --python -o --output
        case 'doctor'
            string join \n -- --python -e --engine -o --output
        case 'config show'
            string join \n -- --model --set -e --engine -o --output
        case 'config check'
            string join \n -- -o --output
        case 'unit'
            string join \n -- -e --engine -o --output
        case 'completion'
            string join \n -- -o --output
        case 'version'
            string join \n -- -o --output
        case 'help'
            string join \n -- -o --output
    end
end

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

complete -c enginectl -f
complete -c enginectl -n "__enginectl_is ''" -s o -l output -x -a 'text json' -d 'text, or json'
complete -c enginectl -n "__enginectl_is ''" -l version -d 'print the version'
complete -c enginectl -n "__enginectl_is ''" -s h -l help -d 'show the help'
complete -c enginectl -n "__enginectl_arg '' 0" -a start -d 'start an engine and wait until it is ready'
complete -c enginectl -n "__enginectl_arg '' 0" -a run -d 'start in the foreground: for a unit or a container'
complete -c enginectl -n "__enginectl_arg '' 0" -a drain -d 'refuse new work, finish what runs, end'
complete -c enginectl -n "__enginectl_arg '' 0" -a stop -d 'end an engine: finish or abort what runs, then shut down'
complete -c enginectl -n "__enginectl_arg '' 0" -a restart -d 'stop and start again with the recorded settings'
complete -c enginectl -n "__enginectl_arg '' 0" -a kill -d 'KILL the engine\'s process group now'
complete -c enginectl -n "__enginectl_arg '' 0" -a ps -d 'list engines'
complete -c enginectl -n "__enginectl_arg '' 0" -a status -d 'one engine: state, verdict, figures, or how it died'
complete -c enginectl -n "__enginectl_arg '' 0" -a requests -d 'list the requests in flight, the hog first'
complete -c enginectl -n "__enginectl_arg '' 0" -a top -d 'watch an engine live'
complete -c enginectl -n "__enginectl_arg '' 0" -a explain -d 'why a request waits, on whom, and until when'
complete -c enginectl -n "__enginectl_arg '' 0" -a events -d 'what happened to an engine'
complete -c enginectl -n "__enginectl_arg '' 0" -a logs -d 'the engine\'s log'
complete -c enginectl -n "__enginectl_arg '' 0" -a stacks -d 'stacks of the engine\'s threads, also when it hangs'
complete -c enginectl -n "__enginectl_arg '' 0" -a dump -d 'a bundle for a bug report: no prompt is in it'
complete -c enginectl -n "__enginectl_arg '' 0" -a metrics -d 'Prometheus text; --listen serves it over HTTP'
complete -c enginectl -n "__enginectl_arg '' 0" -a probe -d 'one line and an exit code: alive, ready, started'
complete -c enginectl -n "__enginectl_arg '' 0" -a wait -d 'until an engine is ready, idle or stopped, or a figure reached'
complete -c enginectl -n "__enginectl_arg '' 0" -a generate -d 'one generation, streamed to stdout'
complete -c enginectl -n "__enginectl_arg '' 0" -a chat -d 'a conversation with the engine\'s model'
complete -c enginectl -n "__enginectl_arg '' 0" -a call -d 'call a utility of the engine'
complete -c enginectl -n "__enginectl_arg '' 0" -a abort -d 'end requests, and be sure that they are gone'
complete -c enginectl -n "__enginectl_arg '' 0" -a cordon -d 'refuse new requests, let the others go on'
complete -c enginectl -n "__enginectl_arg '' 0" -a uncordon -d 'take new requests again; cancels a drain'
complete -c enginectl -n "__enginectl_arg '' 0" -a pause -d 'stop scheduling; new requests wait'
complete -c enginectl -n "__enginectl_arg '' 0" -a resume -d 'schedule again after a pause'
complete -c enginectl -n "__enginectl_arg '' 0" -a sleep -d 'give the memory back, keep the process'
complete -c enginectl -n "__enginectl_arg '' 0" -a wake -d 'take the memory again after a sleep'
complete -c enginectl -n "__enginectl_arg '' 0" -a model -d 'list, fetch and convert models'
complete -c enginectl -n "__enginectl_is model" -s h -l help -d 'show the help'
complete -c enginectl -n "__enginectl_arg model 0" -a ls -d 'List the models in the cache'
complete -c enginectl -n "__enginectl_arg model 0" -a fetch -d 'Fetch a model into the cache'
complete -c enginectl -n "__enginectl_arg model 0" -a convert -d 'Convert a GGUF file into a directory that an engine loads'
complete -c enginectl -n "__enginectl_arg '' 0" -a doctor -d 'check this machine; each trouble with its remedy'
complete -c enginectl -n "__enginectl_arg '' 0" -a config -d 'what a start would use, and from where'
complete -c enginectl -n "__enginectl_is config" -s h -l help -d 'show the help'
complete -c enginectl -n "__enginectl_arg config 0" -a show -d 'Show every setting and option as `start NAME` would use it'
complete -c enginectl -n "__enginectl_arg config 0" -a check -d 'Check config files and ENGINECTL_* variables: unknown keys, wrong values, files that others may write'
complete -c enginectl -n "__enginectl_arg '' 0" -a unit -d 'a systemd unit for an engine'
complete -c enginectl -n "__enginectl_arg '' 0" -a completion -d 'TAB completion for bash, zsh and fish'
complete -c enginectl -n "__enginectl_arg '' 0" -a version -d 'versions of the tool and of running engines'
complete -c enginectl -n "__enginectl_arg '' 0" -a help -d 'explain a verb or an error id'

complete -c enginectl -n "__enginectl_is start" -l model -r -f -a '(__enginectl_models)' -d 'A directory, a .gguf file, or a name of `model ls`'
complete -c enginectl -n "__enginectl_is start" -l set -r -f -a '(__enginectl_settings)' -d 'A setting, as max_model_len=4096, or K= to drop a recorded one; `config show` lists them. May be given again'
complete -c enginectl -n "__enginectl_is start" -l gpus -r -f -d 'GPUs to use; - for no choice'
complete -c enginectl -n "__enginectl_is start" -l restart -r -f -a 'no on-failure always' -d 'no, on-failure[:N] or always'
complete -c enginectl -n "__enginectl_is start" -l python -r -F -d 'Interpreter for the engine'
complete -c enginectl -n "__enginectl_is start" -s d -l detach -d 'Return at once, do not wait for ready'
complete -c enginectl -n "__enginectl_is start" -l timeout -r -f -d 'How long I wait for ready'
complete -c enginectl -n "__enginectl_is start" -l foreground -d 'Stay, logs to stderr; works as PID 1'
complete -c enginectl -n "__enginectl_is start" -l dry-run -d 'Show settings and memory arithmetic, start nothing'
complete -c enginectl -n "__enginectl_is start" -l join -r -f -d 'Be the engine of the frontend whose handshake is at tcp://HOST:PORT'
complete -c enginectl -n "__enginectl_is start" -l allow-remote -d 'Let --join lead to another machine: prompts and outputs in clear, whoever answers drives the engine'
complete -c enginectl -n "__enginectl_is start" -l engine -r -f -a 'enginectl vllm' -d 'enginectl, or vllm: `vllm serve --headless`'
complete -c enginectl -n "__enginectl_is start" -l hold -l no-hold -d 'Clients wait, not fail, while a restart replaces the engine'
complete -c enginectl -n "__enginectl_is start" -l hold-limit -r -f -d 'How long they wait at most'
complete -c enginectl -n "__enginectl_is start" -l hold-sampled -r -f -a 'resume fail' -d 'What held requests do that are sampled'
complete -c enginectl -n "__enginectl_is start" -s e -r -f -a '(__enginectl_known)' -d 'The same as NAME'
complete -c enginectl -n "__enginectl_is start" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is start" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg start 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is run" -l model -r -f -a '(__enginectl_models)' -d 'A directory, a .gguf file, or a name of `model ls`'
complete -c enginectl -n "__enginectl_is run" -l set -r -f -a '(__enginectl_settings)' -d 'A setting, as max_model_len=4096, or K= to drop a recorded one; `config show` lists them. May be given again'
complete -c enginectl -n "__enginectl_is run" -l gpus -r -f -d 'GPUs to use; - for no choice'
complete -c enginectl -n "__enginectl_is run" -l restart -r -f -a 'no on-failure always' -d 'no, on-failure[:N] or always'
complete -c enginectl -n "__enginectl_is run" -l python -r -F -d 'Interpreter for the engine'
complete -c enginectl -n "__enginectl_is run" -l join -r -f -d 'Be the engine of the frontend whose handshake is at tcp://HOST:PORT'
complete -c enginectl -n "__enginectl_is run" -l allow-remote -d 'Let --join lead to another machine: prompts and outputs in clear, whoever answers drives the engine'
complete -c enginectl -n "__enginectl_is run" -l engine -r -f -a 'enginectl vllm' -d 'enginectl, or vllm: `vllm serve --headless`'
complete -c enginectl -n "__enginectl_is run" -l hold -l no-hold -d 'Clients wait, not fail, while a restart replaces the engine'
complete -c enginectl -n "__enginectl_is run" -l hold-limit -r -f -d 'How long they wait at most'
complete -c enginectl -n "__enginectl_is run" -l hold-sampled -r -f -a 'resume fail' -d 'What held requests do that are sampled'
complete -c enginectl -n "__enginectl_is run" -s e -r -f -a '(__enginectl_known)' -d 'The same as NAME'
complete -c enginectl -n "__enginectl_is run" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is run" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg run 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is drain" -l grace -r -f -d 'How long requests get to finish'
complete -c enginectl -n "__enginectl_is drain" -l on-timeout -r -f -a 'abort fail' -d 'What happens to requests that miss it: abort them, or fail now and let them finish all the same'
complete -c enginectl -n "__enginectl_is drain" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is drain" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is drain" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg drain 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is stop" -l grace -r -f -d 'How long requests in flight get before they are aborted'
complete -c enginectl -n "__enginectl_is stop" -l all -d 'All running engines'
complete -c enginectl -n "__enginectl_is stop" -s y -l yes -d 'Do not ask'
complete -c enginectl -n "__enginectl_is stop" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is stop" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is stop" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg stop 0 more" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is restart" -l grace -r -f -d 'How long requests in flight get before they are aborted'
complete -c enginectl -n "__enginectl_is restart" -l timeout -r -f -d 'How long I wait for ready'
complete -c enginectl -n "__enginectl_is restart" -l hold -d 'Clients wait instead of failing; the new engine goes on where it stopped'
complete -c enginectl -n "__enginectl_is restart" -l hold-limit -r -f -d 'How long they wait at most'
complete -c enginectl -n "__enginectl_is restart" -l hold-sampled -r -f -a 'resume fail' -d 'What held requests do that are sampled'
complete -c enginectl -n "__enginectl_is restart" -s y -l yes -d 'Do not ask'
complete -c enginectl -n "__enginectl_is restart" -s e -l engine -r -f -a '(__enginectl_known)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is restart" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is restart" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg restart 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is kill" -s y -l yes -d 'Do not ask'
complete -c enginectl -n "__enginectl_is kill" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is kill" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is kill" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg kill 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is ps" -l running -d 'Leave out engines that have ended'
complete -c enginectl -n "__enginectl_is ps" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is ps" -s h -l help -d 'Show this message and exit'

complete -c enginectl -n "__enginectl_is status" -s p -l property -r -f -a 'schema kind name state reason instance model engine supervisor.pid supervisor.start_time supervisor.cpu_percent supervisor.rss_bytes process.pid process.start_time process.cpu_percent process.rss_bytes gpus started_at uptime_s ready_after_s last_ready_after_s phases ready.max_model_len ready.num_gpu_blocks ready.block_size ready.dp_stats_address ready.dtype ready.vllm_version ready.world_size ready.data_parallel_size ready.kv_cache_size_tokens ready.kv_cache_max_concurrency ready.tensor_parallel_size ready.pipeline_parallel_size ready.decode_context_parallel_size ready.data_parallel_rank ready.max_num_seqs ready.max_num_batched_tokens ready.instance_id ready.supports_lora ready.max_loras ready.mamba_block_size ready.kv_events_config ready.weight_transfer_backend ready.enable_sleep_mode ready.supports_draft_weight_updates ready.effective_attention_block_size asked cordoned drain.began_s_ago drain.grace_s drain.running drain.waiting drain.tokens_left drain.tok_s drain.eta_s drain.worst_id drain.worst_eta_s drain.will_miss stats.window_s stats.running stats.waiting stats.skipped stats.kv_used_ratio stats.kv_blocks stats.kv_used_blocks stats.prefix_hit_ratio stats.decode_tok_s stats.prefill_tok_s stats.requests_in_s stats.preempted_per_min stats.ttft_p50_s stats.ttft_p95_s stats.tpot_p50_ms stats.tpot_p95_ms stats.step stats.step_counter stats.loop_counter stats.loop_age_s stats.input_queue stats.output_queue stats.rejected_messages stats.dropped_outputs stats.finished_total stats.aborted_total stats.failed_total stats.tokens_total stats.history restarts restart_policy next_restart_in_s returns last_exit.code last_exit.signal last_exit.cause last_exit.phase last_exit.at last_exit.requested last_exit.evidence last_exit.step last_exit.running last_exit.waiting last_exit.aborted last_exit.up_s frontend http held held_s metrics log supervisor_version observed_at' -d 'Print only this, as in the JSON: state, process.pid, stats.kv_used_ratio. May be given again'
complete -c enginectl -n "__enginectl_is status" -l exit-status -d 'Judge: 0 serving, 3 not running, 5 not serving now, 9 died, 11 stalled, 69 no answer'
complete -c enginectl -n "__enginectl_is status" -s e -l engine -r -f -a '(__enginectl_known)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is status" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is status" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg status 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is requests" -s n -l limit -r -f -d 'At most so many rows'
complete -c enginectl -n "__enginectl_is requests" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is requests" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is requests" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg requests 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is top" -l once -d 'Print one snapshot; so it is off a terminal too'
complete -c enginectl -n "__enginectl_is top" -l stream -d 'Print a JSON line each interval, no drawing'
complete -c enginectl -n "__enginectl_is top" -s n -l count -r -f -d 'With --stream: end after so many'
complete -c enginectl -n "__enginectl_is top" -l replay -r -F -d 'Look at what --stream, the key w or `dump` wrote'
complete -c enginectl -n "__enginectl_is top" -s i -l interval -r -f -d 'From 0.25s to 10s'
complete -c enginectl -n "__enginectl_is top" -l allow-actions -d 'Let the keys a, D, C, x act on the engine; each asks first'
complete -c enginectl -n "__enginectl_is top" -l ascii -d 'Boxes and sparks in ASCII'
complete -c enginectl -n "__enginectl_is top" -s e -l engine -r -f -a '(__enginectl_known)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is top" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is top" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg top 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is explain" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is explain" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is explain" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg explain 0" -f -a '(__enginectl_lines requests)'

complete -c enginectl -n "__enginectl_is events" -s f -l follow -d 'Go on as they happen, until the engine ends'
complete -c enginectl -n "__enginectl_is events" -s n -l limit -r -f -d 'At most so many of the youngest'
complete -c enginectl -n "__enginectl_is events" -s e -l engine -r -f -a '(__enginectl_known)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is events" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is events" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg events 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is logs" -s f -l follow -d 'Go on as lines come, until the engine ends'
complete -c enginectl -n "__enginectl_is logs" -s n -l lines -r -f -d 'How many of the last lines'
complete -c enginectl -n "__enginectl_is logs" -l previous -d 'Of the start that ended, not of the one that runs'
complete -c enginectl -n "__enginectl_is logs" -l supervisor -d 'The supervisor\'s own log'
complete -c enginectl -n "__enginectl_is logs" -s e -l engine -r -f -a '(__enginectl_known)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is logs" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is logs" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg logs 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is stacks" -l timeout -r -f -d 'How long I wait for them'
complete -c enginectl -n "__enginectl_is stacks" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is stacks" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is stacks" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg stacks 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is dump" -l out -r -F -d 'Where to; else enginectl-NAME-TIME.tar.gz'
complete -c enginectl -n "__enginectl_is dump" -l logs -l no-logs -d 'With the last lines of both logs'
complete -c enginectl -n "__enginectl_is dump" -l timeout -r -f -d 'How long the engine gets for each thing it is asked for'
complete -c enginectl -n "__enginectl_is dump" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is dump" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is dump" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg dump 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is metrics" -l listen -r -f -d 'Serve /metrics, /livez, /readyz from its supervisor at PORT or HOST:PORT, until `--listen off`. `restart` keeps it; after `stop` and `start` say it again'
complete -c enginectl -n "__enginectl_is metrics" -l allow-remote -d 'Serve beyond this machine: whoever reaches it sees model, counts and times, unasked who they are'
complete -c enginectl -n "__enginectl_is metrics" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is metrics" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is metrics" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg metrics 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is probe" -l liveness -d 'Its process is there and its loop turns'
complete -c enginectl -n "__enginectl_is probe" -l readiness -d 'A new request would be served now'
complete -c enginectl -n "__enginectl_is probe" -l startup -d 'It has been ready since it was started'
complete -c enginectl -n "__enginectl_is probe" -l timeout -r -f -d 'How long its supervisor gets to answer'
complete -c enginectl -n "__enginectl_is probe" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is probe" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is probe" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg probe 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is wait" -l for -r -f -a 'ready idle stopped' -d 'ready, idle, stopped, or a figure: \'kv<0.8\', \'running<4\', \'waiting==0\'. Several: all at once'
complete -c enginectl -n "__enginectl_is wait" -l timeout -r -f -d 'How long I wait'
complete -c enginectl -n "__enginectl_is wait" -s e -l engine -r -f -a '(__enginectl_known)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is wait" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is wait" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg wait 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is generate" -l max-tokens -r -f -d 'At most so many new tokens'
complete -c enginectl -n "__enginectl_is generate" -l min-tokens -r -f -d 'At least so many'
complete -c enginectl -n "__enginectl_is generate" -l temperature -r -f -d '0 is greedy'
complete -c enginectl -n "__enginectl_is generate" -l top-p -r -f -d 'Keep the likeliest tokens up to this share, in (0, 1]'
complete -c enginectl -n "__enginectl_is generate" -l top-k -r -f -d 'Keep so many likeliest tokens; 0 keeps all'
complete -c enginectl -n "__enginectl_is generate" -l min-p -r -f -d 'Drop tokens below this share of the best'
complete -c enginectl -n "__enginectl_is generate" -l seed -r -f -d 'Same seed, same text'
complete -c enginectl -n "__enginectl_is generate" -l stop -r -f -d 'End before this text. May be given again'
complete -c enginectl -n "__enginectl_is generate" -l stop-token-id -r -f -d 'End at this token'
complete -c enginectl -n "__enginectl_is generate" -l logprobs -r -f -d 'With -o json: so many best tokens for each'
complete -c enginectl -n "__enginectl_is generate" -l presence-penalty -r -f -d '-2 to 2'
complete -c enginectl -n "__enginectl_is generate" -l frequency-penalty -r -f -d '-2 to 2'
complete -c enginectl -n "__enginectl_is generate" -l repetition-penalty -r -f -d 'Above 0; 1 is none'
complete -c enginectl -n "__enginectl_is generate" -l logit-bias -r -f -d 'May be given again'
complete -c enginectl -n "__enginectl_is generate" -l ignore-eos -d 'Go on past the end token, up to --max-tokens'
complete -c enginectl -n "__enginectl_is generate" -l priority -r -f -d 'Lower runs first'
complete -c enginectl -n "__enginectl_is generate" -l ids -d 'PROMPT is token ids, and so is what is printed'
complete -c enginectl -n "__enginectl_is generate" -l stream -d 'With -o json: a JSON line for each piece, not one document'
complete -c enginectl -n "__enginectl_is generate" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is generate" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is generate" -s h -l help -d 'Show this message and exit'

complete -c enginectl -n "__enginectl_is chat" -l system -r -f -d 'The system message'
complete -c enginectl -n "__enginectl_is chat" -l max-tokens -r -f -d 'At most so many new tokens'
complete -c enginectl -n "__enginectl_is chat" -l temperature -r -f -d '0 is greedy'
complete -c enginectl -n "__enginectl_is chat" -l top-p -r -f -d 'Keep the likeliest tokens up to this share, in (0, 1]'
complete -c enginectl -n "__enginectl_is chat" -l top-k -r -f -d 'Keep so many likeliest tokens; 0 keeps all'
complete -c enginectl -n "__enginectl_is chat" -l min-p -r -f -d 'Drop tokens below this share of the best'
complete -c enginectl -n "__enginectl_is chat" -l seed -r -f -d 'Same seed, same text'
complete -c enginectl -n "__enginectl_is chat" -l stop -r -f -d 'End before this text. May be given again'
complete -c enginectl -n "__enginectl_is chat" -l repetition-penalty -r -f -d 'Above 0; 1 is none'
complete -c enginectl -n "__enginectl_is chat" -l priority -r -f -d 'Lower runs first'
complete -c enginectl -n "__enginectl_is chat" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is chat" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is chat" -s h -l help -d 'Show this message and exit'

complete -c enginectl -n "__enginectl_is call" -l arg -r -f -d 'An argument by name. May be given again'
complete -c enginectl -n "__enginectl_is call" -l args-json -r -f -d 'All arguments as a JSON list or map; @FILE or - (stdin)'
complete -c enginectl -n "__enginectl_is call" -l timeout -r -f -d 'How long I wait for the answer'
complete -c enginectl -n "__enginectl_is call" -l list -d 'List the utilities of this engine'
complete -c enginectl -n "__enginectl_is call" -l describe -d 'Describe UTILITY instead of calling it'
complete -c enginectl -n "__enginectl_is call" -s y -l yes -d 'Do not ask'
complete -c enginectl -n "__enginectl_is call" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is call" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is call" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg call 0" -f -a '(__enginectl_lines utilities)'

complete -c enginectl -n "__enginectl_is abort" -l all -d 'Everything in flight'
complete -c enginectl -n "__enginectl_is abort" -l older -r -f -d 'What is in flight for longer than this'
complete -c enginectl -n "__enginectl_is abort" -l timeout -r -f -d 'How long I wait until they are gone'
complete -c enginectl -n "__enginectl_is abort" -s y -l yes -d 'Do not ask'
complete -c enginectl -n "__enginectl_is abort" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is abort" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is abort" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg abort 0 more" -f -a '(__enginectl_lines requests)'

complete -c enginectl -n "__enginectl_is cordon" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is cordon" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is cordon" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg cordon 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is uncordon" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is uncordon" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is uncordon" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg uncordon 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is pause" -l mode -r -f -a 'keep wait abort' -d 'What runs is frozen, finishes first, or is aborted. New requests wait'
complete -c enginectl -n "__enginectl_is pause" -l timeout -r -f -d 'How long I wait for what runs'
complete -c enginectl -n "__enginectl_is pause" -s y -l yes -d 'Do not ask'
complete -c enginectl -n "__enginectl_is pause" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is pause" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is pause" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg pause 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is resume" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is resume" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is resume" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg resume 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is sleep" -l level -r -f -a '1 2' -d '1: the KV cache. 2: the weights too'
complete -c enginectl -n "__enginectl_is sleep" -l mode -r -f -a 'wait abort' -d 'Requests in flight finish first, or are aborted'
complete -c enginectl -n "__enginectl_is sleep" -l timeout -r -f -d 'How long I wait for what runs'
complete -c enginectl -n "__enginectl_is sleep" -s y -l yes -d 'Do not ask'
complete -c enginectl -n "__enginectl_is sleep" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is sleep" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is sleep" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg sleep 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is wake" -l timeout -r -f -d 'How long I wait for the memory'
complete -c enginectl -n "__enginectl_is wake" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is wake" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is wake" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg wake 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is 'model ls'" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is 'model ls'" -l help -d 'Show this message and exit'

complete -c enginectl -n "__enginectl_is 'model fetch'" -l python -r -F -d 'Interpreter for the engine'
complete -c enginectl -n "__enginectl_is 'model fetch'" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is 'model fetch'" -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg 'model fetch' 0" -f -a 'smollm2-135m-instruct'

complete -c enginectl -n "__enginectl_is 'model convert'" -l dtype -r -f -a 'bfloat16 float16 float32' -d 'bfloat16, float16 or float32'
complete -c enginectl -n "__enginectl_is 'model convert'" -l python -r -F -d 'Interpreter for the engine'
complete -c enginectl -n "__enginectl_is 'model convert'" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is 'model convert'" -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg 'model convert' 0" -F
complete -c enginectl -n "__enginectl_arg 'model convert' 1" -f -a '(__fish_complete_directories (commandline -ct))'

complete -c enginectl -n "__enginectl_is doctor" -l strict -d 'Warnings count as failures'
complete -c enginectl -n "__enginectl_is doctor" -l python -r -F -d 'Interpreter for the engine'
complete -c enginectl -n "__enginectl_is doctor" -s e -l engine -r -f -a '(__enginectl_lines owner)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is doctor" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is doctor" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg doctor 0" -f -a '(__enginectl_lines owner)'

complete -c enginectl -n "__enginectl_is 'config show'" -l origin -d 'Say where each value comes from'
complete -c enginectl -n "__enginectl_is 'config show'" -l changed -d 'Leave out what has its default'
complete -c enginectl -n "__enginectl_is 'config show'" -l model -r -f -a '(__enginectl_models)' -d 'A directory, a .gguf file, or a name of `model ls`'
complete -c enginectl -n "__enginectl_is 'config show'" -l set -r -f -a '(__enginectl_settings)' -d 'A setting, as max_model_len=4096, or K= to drop a recorded one; `config show` lists them. May be given again'
complete -c enginectl -n "__enginectl_is 'config show'" -s e -l engine -r -f -a '(__enginectl_known)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is 'config show'" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is 'config show'" -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg 'config show' 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is 'config check'" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is 'config check'" -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg 'config check' 0 more" -F

complete -c enginectl -n "__enginectl_is unit" -l system -d 'For the system\'s manager, running as you; alone: for your own'
complete -c enginectl -n "__enginectl_is unit" -s e -l engine -r -f -a '(__enginectl_known)' -d 'Engine; may be left out when one is running'
complete -c enginectl -n "__enginectl_is unit" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is unit" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg unit 0" -f -a '(__enginectl_known)'

complete -c enginectl -n "__enginectl_is completion" -l install -d 'Write it where the shell looks, below your own directories'
complete -c enginectl -n "__enginectl_is completion" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is completion" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg completion 0" -f -a 'bash zsh fish'

complete -c enginectl -n "__enginectl_is version" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is version" -s h -l help -d 'Show this message and exit'

complete -c enginectl -n "__enginectl_is help" -s o -l output -r -f -a 'text json' -d 'text, or json: one document on stdout'
complete -c enginectl -n "__enginectl_is help" -s h -l help -d 'Show this message and exit'
complete -c enginectl -n "__enginectl_arg help 0" -f -a 'start run drain stop restart kill ps status requests top explain events logs stacks dump metrics probe wait generate chat call abort cordon uncordon pause resume sleep wake model doctor config unit completion version help E1000 E1001 E1101 E1102 E1103 E1104 E1105 E1106 E1201 E1202 E1203 E1204 E1205 E1301 E1302 E1303 E1304 E1305 E1306 E1403 E1410 E1411 E1501 E1502 E1901 E1999'
