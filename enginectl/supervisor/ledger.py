"""What was asked and what has come for it: enough to ask a new engine for the rest.

ADD frames and token ids come in, ADD frames leave. In memory only, for as long as the request lives; nothing here is
written anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import Raw

from engine.codec import encode_value
from engine.messages import NIL, EngineCoreOutput

PROMPT, SAMPLING, EMBEDS, IS_TOKEN, RESUMABLE = 1, 3, 9, 10, 15
"""Places in the body of an ADD."""
SampledMode = Literal["resume", "fail"]
MAX_SEED = 2**63
_ROW = msgspec.msgpack.Decoder(list[Raw])
_MAP = msgspec.msgpack.Decoder(dict[str, Raw])


class NotResumable(Exception):
    """Asked again, this request would not go on where it stopped; the text says why."""


@dataclass(slots=True)
class Asked:
    """One request in flight. `frames`: as its client sent it."""

    seat: int
    frames: list[bytes]
    token_ids: list[int] = field(default_factory=list)


class Ledger:
    def __init__(self) -> None:
        self.items: dict[str, Asked] = {}
        """In the order they were asked."""

    def add(self, request_id: str, seat: int, frames: list[bytes]) -> None:
        self.items[request_id] = Asked(seat, frames)

    def on_output(self, output: EngineCoreOutput) -> None:
        asked = self.items.get(output.request_id)
        if asked is None:
            return
        if output.finish_reason is not None:
            del self.items[output.request_id]
        else:
            asked.token_ids += output.new_token_ids

    def end(self, request_id: str) -> None:
        self.items.pop(request_id, None)


def rest_of(asked: Asked, mode: SampledMode, *, moves_seed: bool) -> list[bytes]:
    """ADD for what is left: the prompt and the tokens so far as prompt, the rest of max_tokens. `moves_seed`: the
    engine's draws do not depend on the position, so the seed goes on by the number of tokens. Raises NotResumable."""
    done = len(asked.token_ids)
    if not done:
        return asked.frames
    try:
        row = _ROW.decode(asked.frames[1])
        params = _MAP.decode(row[SAMPLING])
        prompt = msgspec.msgpack.decode(row[PROMPT], type=list[int])
    except (msgspec.MsgspecError, IndexError, RecursionError) as error:
        raise NotResumable(f"it has no prompt of token ids and sampling parameters: {error}") from None
    _check(row, params, mode)
    row[PROMPT] = encode_value(prompt + asked.token_ids)
    if len(row) > IS_TOKEN and row[IS_TOKEN] != NIL:
        row[IS_TOKEN] = encode_value(msgspec.msgpack.decode(row[IS_TOKEN], type=list[bool]) + [True] * done)
    row[SAMPLING] = encode_value(_params_of_rest(params, done, moves_seed))
    return [asked.frames[0], bytes(encode_value(row)), *asked.frames[2:]]


def _check(row: list[Raw], params: dict[str, Raw], mode: SampledMode) -> None:
    if any(len(row) > place and bytes(row[place]) not in (b"\xc0", b"\xc2") for place in (EMBEDS, RESUMABLE)):
        raise NotResumable("its prompt is not token ids alone")
    if params.get("structured_outputs", NIL) != NIL:
        raise NotResumable("structured output cannot begin in the middle")
    if mode == "fail" and _number(params, "temperature", 1.0) != 0:
        raise NotResumable("it is sampled")
    counted = [key for key in ("presence_penalty", "frequency_penalty") if _number(params, key, 0.0) != 0]
    if mode == "fail" and counted:
        raise NotResumable(f"{counted[0]} counts output tokens only, and those so far become prompt")


def _number(params: dict[str, Raw], key: str, default: float) -> float:
    raw = params.get(key, NIL)
    return default if raw == NIL else msgspec.msgpack.decode(raw, type=float)


def _params_of_rest(params: dict[str, Raw], done: int, moves_seed: bool) -> dict[str, Raw]:
    changed = dict(params)
    limit = params.get("max_tokens", encode_value(16))
    if limit != NIL:
        changed["max_tokens"] = encode_value(max(1, msgspec.msgpack.decode(limit, type=int) - done))
    changed["min_tokens"] = encode_value(max(0, int(_number(params, "min_tokens", 0)) - done))
    if moves_seed and params.get("seed", NIL) != NIL:
        seed = msgspec.msgpack.decode(params["seed"], type=int) + done
        changed["seed"] = encode_value((seed + MAX_SEED) % (2 * MAX_SEED) - MAX_SEED)
    changed.pop("prompt_logprobs", None)  # they were sent with the first token
    return changed
