"""The metrics page: an engine's figures as Prometheus text.

Where a figure means what it means in vLLM it has vLLM's name, labels and buckets, so that its dashboards work; ours
begin with enginectl_. Pure. No request id, no text: labels are names of engine, model, state and finish reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.messages import FinishReason
from enginectl.control import EngineView
from enginectl.supervisor.stats import StatsBook
from enginectl.supervisor.totals import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = (
    "starting", "ready", "idle", "busy", "saturated", "paused", "sleeping", "cordoned", "draining", "stopping",
    "exited", "failed", "backoff", "stalled", "lost",
)  # fmt: skip


class Page:
    """Lines in the making. A value of None leaves the sample out: what is not known is not 0."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = dict(labels)
        self._lines: list[str] = []

    def add(self, name: str, kind: str, text: str, *samples: tuple[float | None, Mapping[str, str]]) -> None:
        known = [(value, labels) for value, labels in samples if value is not None]
        if not known:
            return
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        self._lines += [f"{name}{self._render(labels)} {_number(value)}" for value, labels in known]

    def gauge(self, name: str, text: str, value: float | None) -> None:
        self.add(name, "gauge", text, (value, {}))

    def counter(self, name: str, text: str, value: float | None) -> None:
        self.add(name, "counter", text, (value, {}))

    def histogram(self, name: str, text: str, values: Histogram) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} histogram"]
        count = 0
        for edge, number in zip([*map(str, values.edges), "+Inf"], values.counts, strict=True):
            count += number
            self._lines.append(f"{name}_bucket{self._render({'le': edge})} {count}")
        self._lines.append(f"{name}_sum{self._render({})} {_number(values.sum)}")
        self._lines.append(f"{name}_count{self._render({})} {count}")

    def _render(self, labels: Mapping[str, str]) -> str:
        pairs = ",".join(f'{key}="{_escape(value)}"' for key, value in {**self._labels, **labels}.items())
        return f"{{{pairs}}}"

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def metrics_text(view: EngineView, book: StatsBook) -> str:
    """The whole page."""
    return _field_page(view, book).text() + _own_page(view, book).text()


def _field_page(view: EngineView, book: StatsBook) -> Page:
    """Figures that vLLM has too."""
    page, stats, totals = Page({"model_name": view.model, "engine": "0"}), view.stats, book.totals
    queries, hits = book.prefix_totals
    if stats is not None:
        page.gauge("vllm:num_requests_running", "Requests in the running batch.", stats.running)
        page.gauge("vllm:num_requests_waiting", "Requests waiting to be scheduled.", stats.waiting)
        page.gauge("vllm:kv_cache_usage_perc", "KV cache in use, 1 is all of it.", stats.kv_used_ratio)
    page.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", queries)
    page.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", hits)
    page.counter("vllm:num_preemptions_total", "Preemptions.", totals.preemptions)
    page.counter("vllm:prompt_tokens_total", "Prompt tokens computed or found cached.", totals.prompt_tokens)
    page.counter("vllm:generation_tokens_total", "Tokens generated.", book.tokens_total)
    page.add(
        "vllm:request_success_total", "counter", "Requests that ended, by how.",
        *((book.finished.get(reason, 0), {"finished_reason": str(reason)}) for reason in FinishReason),
    )  # fmt: skip
    page.histogram("vllm:time_to_first_token_seconds", "From the request to its first token.", totals.ttft)
    page.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.", totals.token)
    page.histogram("vllm:e2e_request_latency_seconds", "From the request to its last token.", totals.whole)
    return page


def _own_page(view: EngineView, book: StatsBook) -> Page:
    page, stats = Page({"name": view.name}), view.stats
    version = {"version": view.supervisor_version, "engine": view.engine, "instance": view.instance}
    page.add("enginectl_info", "gauge", "Versions, in labels.", (1, version))
    page.add("enginectl_state", "gauge", "1 for the state it is in.", *_one_hot(view.state))
    page.gauge("enginectl_cordoned", "1 while new requests are refused.", int(view.cordoned))
    page.counter("enginectl_restarts_total", "Restarts by the supervisor.", view.restarts)
    page.gauge("enginectl_start_seconds", "How long the last start took.", view.ready_after_s)
    for process, info in (("engine", view.process), ("supervisor", view.supervisor)):
        if info is not None:
            page.add(
                f"enginectl_{process}_resident_bytes", "gauge", f"Memory of the {process} process.",
                (info.rss_bytes, {}),
            )  # fmt: skip
    if stats is not None:
        page.counter("enginectl_steps_total", "Steps of the engine.", stats.step_counter)
        page.gauge("enginectl_loop_age_seconds", "Since its loop was last seen to turn.", stats.loop_age_s)
        page.gauge("enginectl_kv_blocks", "KV blocks.", stats.kv_blocks)
        page.gauge("enginectl_kv_used_blocks", "KV blocks that requests hold.", stats.kv_used_blocks)
        page.gauge("enginectl_input_queue_messages", "Messages waiting for the loop.", stats.input_queue)
        page.counter("enginectl_rejected_messages_total", "Messages that could not be read.", stats.rejected_messages)
        page.counter("enginectl_dropped_outputs_total", "Outputs that nobody read.", stats.dropped_outputs)
    page.histogram("enginectl_step_seconds", "Length of a step.", book.totals.step)
    return page


def _one_hot(state: str) -> Iterable[tuple[float, dict[str, str]]]:
    return ((float(name == state), {"state": name}) for name in STATES)
