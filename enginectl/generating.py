"""One generation: ids go to the supervisor, chunks come back, text goes to stdout as soon as it is certain.

Owns the stream; leaving it by any way (a stop string, Ctrl-C, TERM, a closed pipe) aborts just this request."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import MsgspecError, Raw, msgpack

from engine.messages import SamplingParams
from enginectl.client import Engine
from enginectl.control_verbs import Array, GenerateArgs, GenerateChunk, GenerateEnd, LogprobTables
from enginectl.errors import GenerationFailed, UsageError
from enginectl.tokens import Detokenizer, StopStrings
from enginectl.waiting import Waiting

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FORMATS = {"<i4": "i", "int32": "i", "<i8": "q", "int64": "q", "<f4": "f", "float32": "f", "<f8": "d", "float64": "d"}
JsonMap = dict[str, object]


@dataclass(slots=True)
class Generation:
    """What came of it. `text` is None with --ids."""

    request_id: str
    text: str | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[JsonMap] = field(default_factory=list)
    finish_reason: str = ""
    stop_reason: int | str | None = None
    end: GenerateEnd | None = None


def model_directory(engine: Engine) -> Path:
    """Where the running engine's model is. Raises UsageError when it is not on this host."""
    from enginectl.rundir import load_settings

    settings = load_settings(engine.name)
    asked = engine.status().asked.get("model") or (settings.config.get("model") if settings else None)
    path = Path(str(asked))
    if not asked or not (path / "tokenizer.json").is_file():
        where = str(path / "tokenizer.json") if asked else "its model is not recorded"
        raise UsageError(
            f"the tokenizer of {engine.name!r} is not on this host: {where}",
            try_=["--ids takes and prints token ids"],
        )
    return path


def generate(
    engine: Engine,
    prompt_ids: list[int],
    params: SamplingParams,
    *,
    tokenizer: Tokenizer | None,
    stops: list[str],
    emit: Callable[[str], None],
    say: Callable[[str], None],
    priority: int = 0,
) -> Generation:
    """Runs it to its end; `emit` gets text (or ids as text) as it comes, `say` what it waits for when none comes.
    Raises GenerationFailed, EngineDied, and whatever interrupts it."""
    made = Generation(request_id=f"cmpl-{secrets.token_hex(6)}", text=None if tokenizer is None else "")
    args = GenerateArgs(
        request_id=made.request_id, prompt_token_ids=prompt_ids, sampling_params=params, priority=priority
    )
    detokenizer = None if tokenizer is None else Detokenizer(tokenizer)
    stopper = StopStrings(stops)
    waiting = Waiting(engine, made.request_id, say)
    with engine.control.stream("generate", args, GenerateChunk, GenerateEnd, on_quiet=waiting.look) as stream:
        for chunk in stream:
            made.request_id = chunk.request_id or made.request_id
            _take_ids(made, chunk, tokenizer)
            if detokenizer is None:
                emit("".join(f"{token} " for token in chunk.token_ids))
            else:
                _take_text(made, stopper.add(detokenizer.add(chunk.token_ids)), emit)
            if stopper.matched is not None:
                break
        made.end = stream.end
    if detokenizer is not None and stopper.matched is None:
        _take_text(made, stopper.add(detokenizer.end()) + stopper.end(), emit)
    _conclude(made, stopper)
    return made


def _take_ids(made: Generation, chunk: GenerateChunk, tokenizer: Tokenizer | None) -> None:
    made.token_ids.extend(chunk.token_ids)
    made.logprobs.extend(read_logprobs(chunk.logprobs, tokenizer))


def _take_text(made: Generation, text: str, emit: Callable[[str], None]) -> None:
    if text:
        made.text = (made.text or "") + text
        emit(text)


def _conclude(made: Generation, stopper: StopStrings) -> None:
    if stopper.matched is not None:
        made.finish_reason, made.stop_reason = "stop", stopper.matched
        return
    if made.end is None:
        raise GenerationFailed(f"request {made.request_id} ended without a last word")
    made.finish_reason, made.stop_reason = made.end.finish_reason, made.end.stop_reason
    if made.finish_reason in ("error", "abort"):
        raise GenerationFailed(
            f"request {made.request_id} ended with {made.finish_reason}",
            cause=str(made.stop_reason or "the engine was stopped or drained meanwhile, or an operator ended it"),
            see=["enginectl help E1303"],
        )


# ---------------------------------------------------------------- logprobs


def read_logprobs(raw: Raw, tokenizer: Tokenizer | None) -> list[JsonMap]:
    """One map a token: the chosen one and the best, with their text when there is a tokenizer."""
    if bytes(raw) in (b"", b"\xc0"):
        return []
    try:
        tables = msgpack.decode(raw, type=LogprobTables)
    except MsgspecError:
        return []
    ids, values, ranks = _rows(tables.token_ids), _rows(tables.logprobs), _rows(tables.ranks)
    return [_token_map(row, values[i], ranks[i][0], tokenizer) for i, row in enumerate(ids)]


def _token_map(ids: list[float], values: list[float], rank: float, tokenizer: Tokenizer | None) -> JsonMap:
    def one(place: int) -> JsonMap:
        entry: JsonMap = {"token_id": int(ids[place]), "logprob": values[place]}
        if tokenizer is not None:
            entry["token"] = tokenizer.decode([int(ids[place])], skip_special_tokens=False)
        return entry

    return one(0) | {"rank": int(rank), "top": [one(place) for place in range(1, len(ids))]}


def _rows(array: Array) -> list[list[float]]:
    """A 1- or 2-dimensional array as rows; a dtype we do not know is an empty table."""
    code = _FORMATS.get(array.dtype)
    if code is None:
        return []
    flat = memoryview(array.data).cast(code).tolist()  # type: ignore[call-overload]
    width = array.shape[1] if len(array.shape) > 1 else 1
    return [flat[i : i + width] for i in range(0, len(flat), max(1, width))]


__all__ = ["Generation", "generate", "model_directory", "read_logprobs"]
