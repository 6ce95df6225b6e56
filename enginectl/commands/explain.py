"""`enginectl explain ID`: why a request waits, on whom, and until when; how one that runs gets on. Reads only."""

from __future__ import annotations

from typing import Annotated

import typer

from enginectl import text
from enginectl.context import connect
from enginectl.control import RequestView
from enginectl.control_explain import ExplainArgs, Explanation, ExplanationList, Holder
from enginectl.options import EngineOption, Format, OutputOption
from enginectl.output import out
from enginectl.text import one_line

EXAMPLES = ("enginectl explain cmpl-77f", "enginectl explain -e qwen cmpl-77f -o json")
SHOWN = 5
"""Holders named in the text; the document has all."""


def command(
    id: Annotated[str, typer.Argument(metavar="ID", help="The engine's id, your own, or a unique prefix of either.")],
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Say why a request waits, who holds the blocks, when it will start; or how fast it runs and how long still."""
    with connect(engine) as connected:
        found = connected.control.request("explain", ExplainArgs(id=id), ExplanationList)
    out.document("ExplanationList", found)
    for number, item in enumerate(found.items):
        out.text(*([""] if number else []), *lines(item, connected.name))


def lines(found: Explanation, name: str) -> list[str]:
    """One request on a few lines, ending with what to run next."""
    request = found.request
    rows = [("why", found.because)]
    rows += _running_rows(found) if request.state == "running" else _waiting_rows(found)
    rows += [("" if number else "note", note) for number, note in enumerate(found.notes)]
    head = (
        f"{_id(request)}  {request.state} {text.seconds(request.age_s)}   prompt {request.prompt_tokens:,}, "
        f"out {request.output_tokens:,} of {text.number(request.max_tokens)}"
    )
    return [head, *text.pairs(rows), "", f"  next:  {_next(found, name)}"]


def _running_rows(found: Explanation) -> list[tuple[str, str]]:
    request = found.request
    cached = "-" if request.cached_ratio is None else f"{request.cached_ratio:.0%}"
    eta = "-" if found.eta_s is None else f"about {text.seconds(found.eta_s)} for all of them"
    return [
        ("rate", f"{'-' if found.tok_s is None else f'{found.tok_s:,.1f}'} tok/s"),
        ("left", f"{text.number(found.tokens_left)} tokens, {eta}"),
        ("blocks", f"{text.number(request.blocks)} held of {text.number(found.blocks_total)}"),
        ("cached", f"{cached} of its prompt"),
        ("preempted", f"{request.preemptions} times"),
    ]


def _waiting_rows(found: Explanation) -> list[tuple[str, str]]:
    rows = [
        ("place", f"{text.number(found.position)} in the line"),
        (
            "blocks",
            f"{text.number(found.blocks_needed)} needed, {text.number(found.blocks_free)} free of "
            f"{text.number(found.blocks_total)}",
        ),
        ("running", f"{found.running:,} of {text.number(found.max_num_seqs)} sequences"),
        ("starts in", _start(found)),
    ]
    holders = found.holders[:SHOWN]
    rows += [("" if number else "held by", _holder(holder)) for number, holder in enumerate(holders)]
    if len(found.holders) > SHOWN:
        rows.append(("", f"and {len(found.holders) - SHOWN} more"))
    return rows


def _start(found: Explanation) -> str:
    if found.expected_start_steps is None:
        return "-"
    steps = f"{found.expected_start_steps:,} steps"
    if found.expected_start_s is None:
        return f"at most {steps}"
    pace = f"at most {steps}, at {text.milliseconds(found.step_ms)} each now"
    return f"about {text.seconds(found.expected_start_s)}   ({pace})"


def _holder(holder: Holder) -> str:
    share = "" if holder.share is None else f" ({holder.share:.0%})"
    eta = "" if holder.eta_s is None else f", {text.seconds(holder.eta_s)}"
    name = one_line(holder.external_id or holder.id, 60)
    return f"{name}   {holder.blocks:,} blocks{share}   {text.number(holder.tokens_left)} tokens left{eta}"


def _id(request: RequestView) -> str:
    return one_line(request.external_id or request.id, 100)


def _next(found: Explanation, name: str) -> str:
    match found.limit:
        case "paused":
            return f"enginectl resume {name}"
        case "sleeping":
            return f"enginectl wake {name}"
        case "stalled":
            return f"enginectl stacks {name}"
        case "blocks" | "sequences" if found.holders:
            holder = found.holders[0]
            return f"enginectl abort -e {name} {one_line(holder.external_id or holder.id, 100)}"
        case _:
            return f"enginectl requests {name}"
