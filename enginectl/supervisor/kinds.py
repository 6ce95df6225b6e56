"""What kinds of engine there are and in what they differ: one literal table, asked wherever it matters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    has_own_utilities: bool
    """describe, stats, requests, abort_requests with an error, shutdown with a deadline, dump_stacks."""
    answers_aborts: bool
    """A request that its client aborts gets one last output."""
    draws_by_position: bool
    """A seeded request that is asked for the rest of its tokens goes on as it would have."""
    survives_noise: bool
    """A message that cannot be read costs that message only."""
    ping: str
    """A harmless utility that is answered between two steps."""
    handshake_over_tcp: bool
    """It can be told a host and a port for its handshake, no path."""
    tells_phases: bool
    """It writes its start phases to --status-fd."""
    is_guarded: bool
    """Several processes: a guard owns them and the death pipe."""


KINDS: dict[str, Kind] = {
    "enginectl": Kind(
        "enginectl", has_own_utilities=True, answers_aborts=True, draws_by_position=True, survives_noise=True,
        ping="ping", handshake_over_tcp=False, tells_phases=True, is_guarded=False,
    ),
    "vllm": Kind(
        "vllm", has_own_utilities=False, answers_aborts=False, draws_by_position=False, survives_noise=False,
        ping="is_sleeping", handshake_over_tcp=True, tells_phases=False, is_guarded=True,
    ),
}  # fmt: skip
