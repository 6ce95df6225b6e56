"""The book of a client: who waits for what, with no engine behind it."""

from __future__ import annotations

import queue
from concurrent.futures import Future

import pytest

from engine.client.base import new_request
from engine.client.book import Book, Delivery, decode_result
from engine.codec import utility_answer, utility_failure
from engine.errors import EngineDeadError, RequestRefused, UtilityError
from engine.messages import EngineCoreOutput, EngineCoreOutputs, FinishReason, UtilityOutput
from engine.reports import RequestTable


def output(wire_id: str, token: int, reason: FinishReason | None = None) -> EngineCoreOutputs:
    return EngineCoreOutputs(outputs=[EngineCoreOutput(wire_id, [token], finish_reason=reason)])


def opened(book: Book, request_id: str) -> tuple[str, queue.SimpleQueue[Delivery]]:
    sink: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
    entry, wire = book.open(new_request([1], request_id=request_id), sink)
    assert wire.request_id == entry.wire_id
    return entry.wire_id, sink


def test_outputs_reach_their_own_request_under_its_own_id() -> None:
    book = Book()
    wire_a, sink_a = opened(book, "a")
    wire_b, sink_b = opened(book, "b")
    book.route(output(wire_b, 2))
    book.route(output(wire_a, 1, FinishReason.STOP))
    found = sink_a.get_nowait()
    assert isinstance(found, EngineCoreOutput)
    assert (found.request_id, found.new_token_ids, found.finish_reason) == ("a", [1], FinishReason.STOP)
    assert sink_b.get_nowait().new_token_ids == [2]  # type: ignore[union-attr]
    assert book.num_live == 1


def test_the_wire_request_names_the_callers_id_and_a_time() -> None:
    request = new_request([1], request_id="a")
    entry, wire = Book().open(request, queue.SimpleQueue())
    assert wire.external_req_id == "a" and wire.request_id.startswith("a-") and wire.arrival_time > 1e9
    assert request.request_id == "a" and request.external_req_id is None  # the caller's own is untouched
    assert entry.request_id == "a"


def test_an_id_in_use_is_refused_and_the_first_untouched() -> None:
    book = Book()
    wire, sink = opened(book, "a")
    with pytest.raises(RequestRefused, match="'a' is in use"):
        opened(book, "a")
    book.route(output(wire, 5))
    assert sink.get_nowait().new_token_ids == [5]  # type: ignore[union-attr]


def test_late_outputs_of_an_earlier_request_do_not_reach_a_later_one_with_its_id() -> None:
    book = Book()
    sink: queue.SimpleQueue[Delivery] = queue.SimpleQueue()
    old, _ = book.open(new_request([1], request_id="a"), sink)
    assert book.forget(old) is True
    wire, later = opened(book, "a")
    book.route(output(old.wire_id, 1, FinishReason.ABORT))
    assert later.empty() and sink.empty()
    book.route(output(wire, 2, FinishReason.LENGTH))
    assert later.get_nowait().new_token_ids == [2]  # type: ignore[union-attr]


def test_only_live_requests_are_aborted() -> None:
    book = Book()
    wire, _ = opened(book, "a")
    assert book.wire_ids(["a", "unknown"]) == [wire]
    book.route(output(wire, 1, FinishReason.STOP))
    assert book.wire_ids(["a"]) == []


def test_an_ended_request_needs_no_abort_when_forgotten() -> None:
    book = Book()
    entry, wire = book.open(new_request([1], request_id="a"), queue.SimpleQueue())
    book.route(output(wire.request_id, 1, FinishReason.STOP))
    assert book.find("a") is entry
    assert book.forget(entry) is False
    with pytest.raises(RequestRefused, match="no request 'a'"):
        book.find("a")


def test_death_reaches_everybody_once_after_what_had_arrived() -> None:
    book = Book()
    wire, sink = opened(book, "a")
    ended, ended_sink = opened(book, "b")
    answer: Future[UtilityOutput] = Future()
    book.open_call(answer)
    book.route(output(wire, 1))
    book.route(output(ended, 2, FinishReason.STOP))
    book.fail(EngineDeadError("first"))
    book.fail(EngineDeadError("second"))
    assert sink.get_nowait().new_token_ids == [1]  # type: ignore[union-attr]
    assert str(sink.get_nowait()) == "first" and sink.empty()
    assert ended_sink.qsize() == 1  # its own end, nothing of the death
    with pytest.raises(EngineDeadError, match="first"):
        answer.result(0)
    for attempt in (
        lambda: opened(book, "c"),
        lambda: book.open_call(Future()),
        lambda: book.wire_ids(["a"]),
        book.check_alive,
    ):
        with pytest.raises(EngineDeadError, match="first"):
            attempt()


def test_answers_reach_their_call_and_late_ones_nobody() -> None:
    book = Book()
    first: Future[UtilityOutput] = Future()
    second: Future[UtilityOutput] = Future()
    first_id, second_id = book.open_call(first), book.open_call(second)
    book.forget_call(first_id)
    for call_id in (first_id, second_id, 999):
        book.route(EngineCoreOutputs(utility_output=utility_answer(call_id, call_id)))
    assert not first.done()
    assert decode_result("m", second.result(0), int) == second_id


def test_results_are_typed_and_failures_raise() -> None:
    table = utility_answer(1, RequestTable(items=[], total=3))
    assert decode_result("requests", table, RequestTable).total == 3
    assert decode_result("requests", table, object) == {"items": [], "total": 3}
    with pytest.raises(UtilityError, match="requests: the answer does not fit"):
        decode_result("requests", table, int)
    with pytest.raises(UtilityError, match="no such thing"):
        decode_result("m", utility_failure(1, "no such thing"), object)
