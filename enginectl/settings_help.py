"""What each setting and option means, in a line, and the values of those that have few. Pure.

The man page and the completions read it; a test holds it to the settings that there are."""

from __future__ import annotations

from typing import NamedTuple

from engine.config import DIALECTS, DTYPES, EXECUTORS, KERNELS, QUANTIZATIONS


class Meaning(NamedTuple):
    text: str
    values: tuple[str, ...] = ()


_SWITCH = ("true", "false")
SETTINGS: dict[str, Meaning] = {
    "model": Meaning("A directory, a .gguf file, or a name of `enginectl model ls`."),
    "dtype": Meaning("What weights and cache are computed in; auto takes what the model was saved in.", DTYPES),
    "max_model_len": Meaning("Tokens that one request may hold, prompt and output; cut to fit the KV cache."),
    "max_num_seqs": Meaning("Requests that run at the same time."),
    "max_num_batched_tokens": Meaning("Tokens of one step; a longer prompt is computed in pieces."),
    "block_size": Meaning("Tokens in one block of the KV cache."),
    "kv_memory": Meaning("Bytes for the KV cache; without it a share of what is free after the weights are loaded."),
    "num_gpu_blocks": Meaning("Exactly so many blocks, whatever kv_memory says."),
    "enable_prefix_caching": Meaning("Keep the blocks of prompts, for requests that begin alike.", _SWITCH),
    "executor": Meaning("What computes; null computes nothing, module:Class is one of your own.", EXECUTORS),
    "device": Meaning("Where it computes.", ("auto", "cpu", "cuda")),
    "kernels": Meaning("Compiled steps as soon as they are built (auto), always (native), or never (eager).", KERNELS),
    "quantization": Meaning("Round weights to so many bits at load: smaller, faster, less exact.", QUANTIZATIONS),
    "threads": Meaning("Threads of one step; without it as many as there are cores."),
    "seed": Meaning("Of the sampling of requests that bring none."),
    "shutdown_timeout_s": Meaning("Seconds that a TERM to the engine lets requests finish; 0 aborts them."),
    "orphan_grace_s": Meaning("Seconds that requests get when the supervisor is gone."),
    "client_byte_budget": Meaning("Bytes of outputs that a client may leave unread before its requests are aborted."),
    "dialect": Meaning("Which version's layout outputs have; auto takes what the other end shows of itself.", DIALECTS),
    "allow_unsafe_calls": Meaning("Permit utilities that write files.", _SWITCH),
    "log_level": Meaning("How much the engine's log says.", ("debug", "info", "warning", "error")),
}
OPTIONS: dict[str, Meaning] = {
    "timeout": Meaning("How long a command waits."),
    "grace": Meaning("How long requests get to finish."),
    "restart": Meaning("When a supervisor starts a dead engine again; on-failure:N at most N times in ten minutes.",
                       ("no", "on-failure", "always")),
    "python": Meaning("The interpreter that runs the engine."),
    "gpus": Meaning("Numbers of the GPUs that the engine sees, as 0,1."),
}  # fmt: skip
