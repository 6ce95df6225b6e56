"""probe and the HTTP twins: what each says of an engine that serves, starts, hangs, is cut off, is gone."""

from __future__ import annotations

import http.client
import os
import signal
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from tests.support.ctl import PACED, Ctl
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e


def probes(ctl: Ctl) -> list[int]:
    return [ctl("probe", "t", kind).code for kind in ("--liveness", "--readiness", "--startup")]


def test_a_healthy_engine_is_one_line(served: Ctl) -> None:
    result = served.ok("probe", "t", "--liveness")
    assert result.out.startswith("ok step=") and result.out.count("\n") == 1
    document = served.ok("probe", "--readiness", "-o", "json").document
    assert (document["ok"], document["probe"], document["exit"]) == (True, "readiness", 0)
    assert served("probe", "--liveness", "--startup").code == 2
    assert served("probe", "nobody").code == 4


def test_a_cordon_is_alive_and_not_ready(served: Ctl) -> None:
    served.ok("cordon")
    try:
        assert probes(served) == [0, 5, 0]
    finally:
        served.ok("uncordon")


def test_starting_stalled_cut_off_and_gone(ctl: Ctl) -> None:
    ctl.make_model()
    ctl.ok("start", "t", "--model", str(ctl.model), "--set", f"executor={PACED}", "-d", PACED_LOAD_S="3")
    assert probes(ctl) == [0, 5, 5]
    ctl.ok("wait", "t", "--for", "ready")
    assert probes(ctl) == [0, 0, 0]
    engine, supervisor = ctl.record()["engine"]["pid"], ctl.record()["supervisor"]["pid"]
    os.kill(engine, signal.SIGSTOP)
    wait_until(lambda: ctl("probe", "t").code == 11, 20.0, "stalled")
    assert "state T" in ctl("probe", "t").out
    os.kill(engine, signal.SIGCONT)
    wait_until(lambda: ctl("probe", "t").code == 0, 20.0, "alive again")
    os.kill(supervisor, signal.SIGSTOP)
    assert ctl("probe", "t", "--timeout", "500ms").code == 69
    os.kill(supervisor, signal.SIGCONT)
    ctl.ok("stop", "t")
    assert probes(ctl) == [3, 3, 3]
    assert ctl("probe").code == 3


# ---------------------------------------------------------------- over HTTP


def get(url: str, path: str) -> tuple[int, str]:
    client = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)
    try:
        client.request("GET", path)
        answer = client.getresponse()
        return answer.status, answer.read().decode()
    finally:
        client.close()


def test_metrics_are_served_until_they_are_not(served: Ctl) -> None:
    url = served.ok("metrics", "t", "--listen", "0", "-o", "json").document["listening"]
    assert served.ok("status", "-p", "metrics").out.strip() == url
    status, page = get(url, "/metrics")
    assert status == 200 and 'vllm:num_requests_running{model_name="tiny",engine="0"} ' in page
    assert get(url, "/livez")[0] == get(url, "/readyz")[0] == 200
    served.ok("cordon")
    assert (get(url, "/livez")[0], get(url, "/readyz")) == (200, (503, get(url, "/readyz")[1]))
    assert "cordoned" in get(url, "/readyz")[1]
    served.ok("uncordon")
    assert get(url, "/readyz")[0] == 200
    assert "no longer served" in served.ok("metrics", "--listen", "off").out
    with pytest.raises(OSError):
        get(url, "/livez")


def test_metrics_once_are_the_same_page(served: Ctl) -> None:
    served.ok("generate", "x", "--max-tokens", "3", "--ignore-eos")
    page = served.ok("metrics", "t").out
    assert 'vllm:request_success_total{model_name="tiny",engine="0",finished_reason="length"} ' in page
    assert "# TYPE vllm:time_to_first_token_seconds histogram" in page
    assert served.ok("metrics", "-o", "json").document["text"].splitlines()[0] == page.splitlines()[0]


def test_others_reach_it_only_when_asked_for(served: Ctl) -> None:
    refused = served("metrics", "--listen", "0.0.0.0:0")
    assert (refused.code, "--allow-remote" in refused.err) == (6, True)
    assert served("metrics", "--listen", "some.host:1").code == 2
    url = served.ok("metrics", "--listen", "0.0.0.0:0", "--allow-remote", "-o", "json").document["listening"]
    assert get(url, "/livez")[0] == 200
    served.ok("metrics", "--listen", "off")


def test_serving_metrics_outlives_a_restart(ctl: Ctl) -> None:
    ctl.start("t")
    url = ctl.ok("metrics", "t", "--listen", "0", "-o", "json").document["listening"]
    ctl.ok("restart", "t", "--grace", "0s")

    def page() -> bytes:
        with urlopen(url, timeout=10) as answer:
            return bytes(answer.read())

    wait_until(lambda: b"vllm:num_requests_running" in page(), 20, "figures of the new engine")  # one page a second
    assert "restart" in " ".join(ctl.ok("metrics", "--help").out.split())
