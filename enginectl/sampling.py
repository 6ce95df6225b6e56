"""Sampling flags of `generate` and `chat` become SamplingParams, checked before anything is sent. typer only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import typer

from engine.messages import SamplingParams
from enginectl.errors import UsageError
from enginectl.tokens import ModelTexts

LIMIT = 2**31
"""Ids, counts and priorities have 32 bits; how many tokens a model has, the engine knows."""


def _signed(value: int) -> int:
    return _between(-LIMIT + 1, value)


def _counted(value: int) -> int:
    return _between(-1, value)


def _ids(values: list[int] | None) -> list[int] | None:
    for value in values or ():
        _between(0, value)
    return values


def _between(least: int, value: int) -> int:
    if not least <= value < LIMIT:
        raise typer.BadParameter(f"{value} is not in {least:,} .. {LIMIT - 1:,}")
    return value


MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="At most so many new tokens.")]
MinTokens = Annotated[int, typer.Option("--min-tokens", min=0, help="At least so many.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")]
TopP = Annotated[float, typer.Option("--top-p", help="Keep the likeliest tokens up to this share, in (0, 1].")]
TopK = Annotated[int, typer.Option("--top-k", callback=_counted, help="Keep so many likeliest tokens; 0 keeps all.")]
MinP = Annotated[float, typer.Option("--min-p", min=0.0, max=1.0, help="Drop tokens below this share of the best.")]
Seed = Annotated[int | None, typer.Option("--seed", show_default=False, help="Same seed, same text.")]
Stop = Annotated[
    list[str] | None, typer.Option("--stop", show_default=False, help="End before this text. May be given again.")
]
StopTokenId = Annotated[
    list[int] | None,
    typer.Option("--stop-token-id", callback=_ids, show_default=False, help="End at this token."),
]
LogprobsOption = Annotated[
    int | None,
    typer.Option("--logprobs", min=0, show_default=False, help="With -o json: so many best tokens for each."),
]
Presence = Annotated[float, typer.Option("--presence-penalty", min=-2.0, max=2.0, help="-2 to 2.")]
Frequency = Annotated[float, typer.Option("--frequency-penalty", min=-2.0, max=2.0, help="-2 to 2.")]
Repetition = Annotated[float, typer.Option("--repetition-penalty", help="Above 0; 1 is none.")]
LogitBias = Annotated[
    list[str] | None, typer.Option("--logit-bias", metavar="ID=BIAS", show_default=False, help="May be given again.")
]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on past the end token, up to --max-tokens.")]
Priority = Annotated[int, typer.Option("--priority", callback=_signed, help="Lower runs first.")]


def make_params(
    texts: ModelTexts,
    *,
    max_tokens: int,
    min_tokens: int = 0,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    seed: int | None = None,
    stop_token_ids: Sequence[int] = (),
    logprobs: int | None = None,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    repetition_penalty: float = 1.0,
    logit_bias: Sequence[str] = (),
    ignore_eos: bool = False,
) -> SamplingParams:
    """Raises UsageError for what no engine takes; what depends on the model the engine checks."""
    if not 0 < top_p <= 1:
        raise UsageError(f"--top-p must be above 0 and at most 1, not {top_p:g}")
    if min_tokens > max_tokens:
        raise UsageError(f"--min-tokens {min_tokens} is more than --max-tokens {max_tokens}")
    if repetition_penalty <= 0:
        raise UsageError(f"--repetition-penalty must be above 0, not {repetition_penalty:g}")
    ends = [] if texts.eos_token_id is None else [texts.eos_token_id, *texts.other_stop_ids]
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop_token_ids=list(stop_token_ids),
        logprobs=logprobs,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        repetition_penalty=repetition_penalty,
        logit_bias=parse_bias(logit_bias),
        ignore_eos=ignore_eos,
        eos_token_id=None if ignore_eos else texts.eos_token_id,  # a vLLM engine ends there, whatever ignore_eos says
        all_stop_token_ids=sorted({*stop_token_ids, *ends}),
    )


def parse_bias(pairs: Sequence[str]) -> dict[int, float] | None:
    """`ID=BIAS` or `ID:BIAS`. Raises UsageError."""
    bias: dict[int, float] = {}
    for pair in pairs:
        key, _, value = pair.replace(":", "=").partition("=")
        try:
            token, weight = int(key), float(value)
        except ValueError:
            raise UsageError(f"--logit-bias wants ID=BIAS, not {pair!r}") from None
        if not 0 <= token < LIMIT or not math.isfinite(weight):
            raise UsageError(f"--logit-bias wants a token id and a finite number, not {pair!r}")
        bias[token] = weight
    return bias or None
