from __future__ import annotations

import re

from engine.messages import EngineCoreOutput, EngineCoreRequest, FinishReason, SamplingParams, SchedulerStats
from enginectl.control import EngineView
from enginectl.control_stats import ProcessInfo
from enginectl.supervisor.exposition import metrics_text
from enginectl.supervisor.inflight import InflightTable
from enginectl.supervisor.stats import StatsBook
from enginectl.supervisor.totals import Histogram

SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\}) (\S+)$')


def one_request(book: StatsBook) -> None:
    """Five prompt tokens, three tokens out, half a second apart."""
    table = InflightTable()
    flight = table.add(EngineCoreRequest("secret-id", [1, 2, 3, 4, 5], sampling_params=SamplingParams(max_tokens=3)))
    began = flight.added_at
    for number in range(3):
        now = began + 0.5 * (number + 1)
        last = int(FinishReason.LENGTH) if number == 2 else None
        output = EngineCoreOutput("secret-id", [9], finish_reason=last)
        was_at = flight.last_at
        book.on_output(output, table.on_output(output, now), was_at, now)
    book.on_step(SchedulerStats(step_counter=3, num_preempted=2), began + 2)


def page(view: EngineView, book: StatsBook) -> dict[str, float]:
    """Every line is a comment or a sample; samples by name and labels."""
    found = {}
    for line in metrics_text(view, book).splitlines():
        if line.startswith("#"):
            assert line.split()[1] in ("HELP", "TYPE")
            continue
        match = SAMPLE.match(line)
        assert match, line
        found[match[1] + match[2]] = float(match[3])
    return found


def view_of(book: StatsBook, **more: object) -> EngineView:
    stats = book.snapshot(10.0, 1, 2)
    return EngineView(name="t", state="busy", model="tiny", stats=stats, **more)  # type: ignore[arg-type]


def test_names_and_labels_are_those_that_dashboards_know() -> None:
    book = StatsBook()
    one_request(book)
    found = page(view_of(book), book)
    labels = '{model_name="tiny",engine="0"}'
    assert found[f"vllm:num_requests_running{labels}"] == 1
    assert found[f"vllm:num_requests_waiting{labels}"] == 2
    assert found[f"vllm:prompt_tokens_total{labels}"] == 5
    assert found[f"vllm:generation_tokens_total{labels}"] == 3
    assert found[f"vllm:num_preemptions_total{labels}"] == 2
    assert found['vllm:request_success_total{model_name="tiny",engine="0",finished_reason="length"}'] == 1
    assert found['vllm:request_success_total{model_name="tiny",engine="0",finished_reason="abort"}'] == 0
    assert found['vllm:time_to_first_token_seconds_bucket{model_name="tiny",engine="0",le="0.25"}'] == 0
    assert found['vllm:time_to_first_token_seconds_bucket{model_name="tiny",engine="0",le="0.75"}'] == 1
    assert found[f"vllm:inter_token_latency_seconds_count{labels}"] == 2
    assert abs(found[f"vllm:e2e_request_latency_seconds_sum{labels}"] - 1.5) < 1e-6


def test_ours_have_our_name_and_what_is_unknown_is_left_out() -> None:
    book = StatsBook()
    found = page(view_of(book, process=ProcessInfo(pid=1, start_time=0, rss_bytes=77)), book)
    assert found['enginectl_state{name="t",state="busy"}'] == 1
    assert found['enginectl_state{name="t",state="idle"}'] == 0
    assert found['enginectl_engine_resident_bytes{name="t"}'] == 77
    assert not any(name.startswith(("enginectl_kv_blocks", "enginectl_supervisor")) for name in found)


def test_an_engine_without_figures_has_a_page() -> None:
    found = page(EngineView(name="t", state="failed"), StatsBook())
    assert found['enginectl_state{name="t",state="failed"}'] == 1
    assert not any("num_requests_running" in name for name in found)


def test_labels_are_escaped_and_no_request_is_named() -> None:
    book = StatsBook()
    one_request(book)
    view = view_of(book)
    view.model = 'a"b\\c\nd'
    text = metrics_text(view, book)
    assert 'model_name="a\\"b\\\\c\\nd"' in text
    assert "secret" not in text
    page(view, book)


def test_a_value_on_an_edge_is_in_its_bucket() -> None:
    values = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 9.0):
        values.add(value)
    assert (values.counts, values.total, values.sum) == ([1, 2, 1], 4, 13.5)
