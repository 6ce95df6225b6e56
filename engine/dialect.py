"""The two layouts of an output: 0.25, 0.32, and the common beginning for a peer whose version is not yet known.

`outputs_row` gives what is encoded, `from_032` undoes it. Nothing else depends on versions."""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeAlias

from msgspec import Raw, Struct

from engine.messages import (
    NIL,
    EngineCoreEvent,
    EngineCoreOutput,
    EngineCoreOutputs,
    Logprobs,
    PrefillStats,
    SchedulerStats,
    UtilityOutput,
)
from engine.peek import Buffer, add_head

Row: TypeAlias = tuple[object, ...]
ADD_FIELDS_025 = 20
ADD_FIELDS_032 = 22
_VERSION = re.compile(r"(\d+)\.(\d+)")


class Dialect(Enum):
    V025 = "0.25"
    V032 = "0.32"
    UNKNOWN = "unknown"


class Output032(Struct, array_like=True):
    """EngineCoreOutput as 0.32 lays it out."""

    request_id: str
    new_token_ids: list[int]
    new_logprobs: Logprobs | None = None
    new_prompt_logprobs: Logprobs | None = None
    pooling_output: Raw = NIL
    finish_reason: int | None = None
    stop_reason: int | str | None = None
    events: list[EngineCoreEvent] | None = None
    kv_transfer_params: Raw = NIL
    ec_transfer_params: Raw = NIL
    trace_headers: dict[str, str] | None = None
    prefill_stats: PrefillStats | None = None
    routed_experts: Raw = NIL
    num_nans_in_logits: int = 0
    more: Raw = NIL


class Outputs032(Struct, array_like=True):
    engine_index: int = 0
    outputs: list[Output032] = []
    scheduler_stats: SchedulerStats | None = None
    timestamp: float = 0.0
    utility_output: UtilityOutput | None = None
    finished_requests: list[str] | None = None
    wave_complete: int | None = None
    start_wave: int | None = None
    weight_version: str | None = None


def _start(o: EngineCoreOutput) -> Row:
    return (o.request_id, o.new_token_ids, o.new_logprobs, o.new_prompt_logprobs, o.pooling_output,
            o.finish_reason, o.stop_reason, o.events, o.kv_transfer_params)  # fmt: skip


def _row_032(o: EngineCoreOutput) -> Row:
    tail = (None, o.trace_headers, o.prefill_stats, o.routed_experts, o.num_nans_in_logits, None, None, None, None)
    return _start(o) + tail


def outputs_row(message: EngineCoreOutputs, dialect: Dialect) -> Row:
    """What to encode for a peer of this dialect."""
    outputs: list[EngineCoreOutput] | list[Row] = message.outputs
    if dialect is Dialect.V032:
        outputs = [_row_032(output) for output in message.outputs]
    elif dialect is Dialect.UNKNOWN:
        outputs = [_start(output) for output in message.outputs]
    row = (message.engine_index, outputs, message.scheduler_stats, message.timestamp, message.utility_output,
           message.finished_requests, message.wave_complete, message.start_wave)  # fmt: skip
    if dialect is not Dialect.V032:
        return row
    unnamed = None if message.utility_output else "default"
    return (*row, message.weight_version or unnamed)


def from_032(message: Outputs032) -> EngineCoreOutputs:
    outputs = [
        EngineCoreOutput(o.request_id, o.new_token_ids, o.new_logprobs, o.new_prompt_logprobs, o.pooling_output,
                         o.finish_reason, o.stop_reason, o.events, o.kv_transfer_params, o.trace_headers,
                         o.prefill_stats, o.routed_experts, o.num_nans_in_logits)
        for o in message.outputs
    ]  # fmt: skip
    return EngineCoreOutputs(message.engine_index, outputs, message.scheduler_stats, message.timestamp,
                             message.utility_output, message.finished_requests, message.wave_complete,
                             message.start_wave, message.weight_version)  # fmt: skip


def detect_dialect_from_add(body: Buffer) -> Dialect:
    """From the declared length of a client's ADD body. UNKNOWN when it stops early or is no array."""
    fields = add_head(body).fields or 0
    if fields > ADD_FIELDS_025:
        return Dialect.V032
    return Dialect.V025 if fields == ADD_FIELDS_025 else Dialect.UNKNOWN


def detect_dialect_from_ready(vllm_version: str) -> Dialect:
    """From the version an engine names in its ready response. What came between the two is not known: 0.32 decides."""
    match = _VERSION.match(vllm_version)
    if match is None:
        return Dialect.UNKNOWN
    return Dialect.V032 if (int(match[1]), int(match[2])) >= (0, 32) else Dialect.V025


def forced_dialect(setting: str) -> Dialect | None:
    """What the setting `dialect` names; None for auto."""
    return None if setting == "auto" else Dialect(setting)


def dialect_of_outputs(body: Buffer) -> Dialect:
    """From the declared length of an engine's own message: 0.32 writes nine elements, 0.25 eight."""
    return Dialect.V032 if len(body) and body[0] == 0x99 else Dialect.V025
