"""The table of requests in flight and what an id that somebody types means."""

from __future__ import annotations

import pytest

from engine.messages import EngineCoreOutput, EngineCoreRequest, FinishReason, PrefillStats, SamplingParams
from enginectl.supervisor.inflight import EndedBy, InflightTable, external_id_of


def request(name: str, external: str | None = None, client: int = 0) -> EngineCoreRequest:
    return EngineCoreRequest(
        name, [1, 2, 3, 4], sampling_params=SamplingParams(max_tokens=9), client_index=client, external_req_id=external
    )


@pytest.mark.parametrize(
    ("engine_id", "external"),
    [
        ("cmpl-X-0-8a1f0945", "cmpl-X"),
        ("0_cmpl-X-8a1f0945", "cmpl-X"),
        ("1_cmpl-X-0-8a1f0945", "cmpl-X"),
        ("chatcmpl-91c-deadbeef", "chatcmpl-91c"),
        ("plain", "plain"),
    ],
)
def test_the_external_id_is_what_the_user_saw(engine_id: str, external: str) -> None:
    assert external_id_of(request(engine_id)) == external
    assert external_id_of(request(engine_id, "given")) == "given"


def test_outputs_are_counted_and_the_last_one_ends_it() -> None:
    table = InflightTable()
    flight = table.add(request("a"))
    table.on_output(EngineCoreOutput("a", [5, 6], prefill_stats=PrefillStats(num_cached_tokens=2)), flight.added_at + 1)
    table.on_output(EngineCoreOutput("a", [7]), flight.added_at + 2)
    view = table.views()[0]
    assert (view.output_tokens, view.cached_ratio, view.ttft_s, view.tpot_ms) == (3, 0.5, 1.0, 500.0)
    table.on_output(EngineCoreOutput("a", [], finish_reason=int(FinishReason.LENGTH)), flight.added_at + 3)
    assert len(table) == 0 and flight.gone.result() is FinishReason.LENGTH
    assert table.on_output(EngineCoreOutput("a", [1]), 0.0) is None


def test_an_id_is_found_by_every_form() -> None:
    table = InflightTable()
    for name in ("0_cmpl-ab-11111111", "1_cmpl-ab-11111111", "cmpl-cd-22222222"):
        table.add(request(name))
    assert len(table.find("cmpl-ab").flights) == 2
    assert [flight.id for flight in table.find("cmpl-c").flights] == ["cmpl-cd-22222222"]
    assert [flight.id for flight in table.find("1_cmpl-ab-11111111").flights] == ["1_cmpl-ab-11111111"]
    assert len(table.find("cmpl-a").flights) == 2
    assert table.find("cmpl-").ambiguous
    assert table.find("x").flights == [] and not table.find("x").finished
    assert table.find("").flights == []


@pytest.mark.parametrize(
    ("asked_by", "reason", "is_cut_off"),
    [
        ("", FinishReason.ABORT, True),
        ("", FinishReason.ERROR, False),
        ("", FinishReason.STOP, False),
        ("client", FinishReason.ABORT, False),
        ("operator", FinishReason.ERROR, False),
        ("drain", FinishReason.ERROR, True),
        ("drain", FinishReason.LENGTH, False),
    ],
)
def test_only_who_was_wanted_until_the_end_is_cut_off(
    asked_by: EndedBy, reason: FinishReason, is_cut_off: bool
) -> None:
    table = InflightTable()
    flight = table.add(request("a"))
    flight.claim(asked_by)
    table.end(flight, reason)
    table.end(flight, FinishReason.ABORT)
    assert table.cut_off == is_cut_off


def test_who_was_given_up_is_not_at_stake_when_the_engine_ends() -> None:
    table = InflightTable()
    askers: tuple[EndedBy, ...] = ("client", "operator", "drain", "")
    for asked_by in askers:
        table.add(request(asked_by or "nobody")).claim(asked_by)
    table.flights["client"].claim("drain")
    assert table.at_stake == 2
    table.end_all()
    assert (table.cut_off, table.at_stake) == (2, 0)


def test_what_has_ended_is_remembered_but_not_for_ever() -> None:
    table = InflightTable()
    for number in range(1500):
        flight = table.add(request(f"r{number}-{number:08x}"))
        table.end(flight, FinishReason.STOP)
    assert table.find("r1499").finished == "stop"
    assert not table.find("r1-00000001").finished
    assert len(table._ended) <= 2000


def test_an_id_that_comes_back_is_in_flight_again() -> None:
    table = InflightTable()
    table.end(table.add(request("a")), FinishReason.ABORT)
    table.add(request("a"))
    assert len(table.find("a").flights) == 1
