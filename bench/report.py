"""The page bench/RESULTS.md: machine, versions, the table, and what makes its figures doubtful. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.arms import DTYPE, Arm
from bench.runs import Document
from bench.table import OURS, Line, as_table, number

QUIET_LOAD = 0.3
"""CPU of strangers, in cores, from which on a sitting says that it was not alone."""


def strangers(documents: Sequence[Document]) -> float:
    """The most CPU that others took in any group of any run, in cores."""
    return max((share for run in documents for share in run["result"]["others_cores"].values()), default=0.0)


def frontend(documents: Sequence[Document]) -> float:
    return max((share for run in documents for share in run["result"]["frontend_cores"].values()), default=0.0)


def report(facts: Document, found: Sequence[Line], runs: Sequence[Document], arms: Sequence[Arm]) -> str:
    machine, made = facts["machine"], facts["result"]["versions"]
    rounds = max((run["round"] for run in runs), default=0)
    loud = strangers(runs)
    text = [
        "# Beside vLLM",
        "",
        f"{machine['cpu']}, {machine['cores']} cores ({', '.join(machine['isa']) or 'no vector units of note'}), "
        f"{machine['memory_gib']} GiB, Linux {machine['kernel']}. {facts['at'][:10]}. enginectl {made['enginectl']} "
        f"({made['revision']}), torch {made['torch']}; vLLM {made['vllm']}, torch {made['vllm_torch']}.",
        "",
        f"Made by `python -m bench.peers MODEL_DIR --peer-python VENV/bin/python --rounds {rounds}{asked(facts)}`: "
        f"medians of {rounds} rounds, all arms in turn, {weights(facts)}, each run a new engine whose files "
        "are in memory when it is started, one neutral frontend for all (bench/protocol.py). Compare the ratios, not "
        "the figures: another machine has others.",
        "",
        *as_table(found, [arm.title for arm in arms if arm.name != OURS]),
        "",
        f"The frontend took {frontend(runs):.0%} of a core at most; others on the machine {loud:.0%} of a core at most"
        + (": **this sitting was not alone on the machine**." if loud > QUIET_LOAD else "."),
        f"Tokens in one output message of one request: {number(max_tokens(runs))} at most.",
        "",
        "The arms:",
        "",
        *(f"- {arm.title}: `{arm.in_words()}`" for arm in arms),
        "",
    ]
    return "\n".join(text)


def is_mixed(facts: Document) -> bool:
    return bool(facts["settings"].get("peer_dtype", DTYPE) != DTYPE)


def asked(facts: Document) -> str:
    return f" --peer-dtype {facts['settings']['peer_dtype']}" if is_mixed(facts) else ""


def weights(facts: Document) -> str:
    if not is_mixed(facts):
        return f"{DTYPE} weights"
    return f"{DTYPE} weights for ours and {facts['settings']['peer_dtype']} for vLLM, its faster type on this CPU"


def max_tokens(runs: Sequence[Document]) -> float:
    return max((run["result"]["most_tokens_an_output"] for run in runs), default=0)
