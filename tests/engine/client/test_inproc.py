"""InprocClient: the core in this process; the same words as the other clients."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable

import psutil
import pytest

from engine.client import (
    EngineDeadError,
    EngineError,
    FinishReason,
    InprocClient,
    RequestRefused,
    SamplingParams,
    UtilityError,
    new_request,
)
from engine.messages import EngineCoreOutput, EngineCoreRequest
from engine.reports import RequestTable
from tests.engine.client.conftest import Configure


def request(name: str | None = None, max_tokens: int = 4) -> EngineCoreRequest:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
    return new_request([1, 2, 3], params, request_id=name)


def count(outputs: Iterable[EngineCoreOutput]) -> int:
    return sum(len(output.new_token_ids) for output in outputs)


def test_streams_share_steps(configure: Configure) -> None:
    with InprocClient(configure()) as client:
        assert client.ready.num_gpu_blocks == 1024
        client.add(request("a", 3))
        assert count(client.stream(request("b", 5))) == 5
        assert client.num_live == 0  # a went along
        assert count(client.stream("a")) == 3


def test_refusals(configure: Configure) -> None:
    with InprocClient(configure()) as client:
        (output,) = client.stream(new_request([]))
        assert output.finish_reason == FinishReason.ERROR and "prompt" in str(output.stop_reason)
        client.add(request("x", 100))
        with pytest.raises(RequestRefused, match="in use"):
            client.add(request("x"))
        with pytest.raises(RequestRefused, match="no request"):
            client.stream("unknown")
        with pytest.raises(UtilityError, match="collective_rpc"):
            client.call("collective_rpc")
        with pytest.raises(UtilityError, match=r"is_sleeping failed: .*Expected"):
            client.call("is_sleeping", result_type=int)


def test_abort_and_a_stream_left_early(configure: Configure) -> None:
    with InprocClient(configure()) as client:
        stream = client.stream(request("x", 1000))
        next(stream)
        client.abort(["x", "unknown"])
        client.abort("x")
        *_, last = stream
        assert last.finish_reason == FinishReason.ABORT
        left = client.stream(request("y", 1000))
        next(left)
        del left
        gc.collect()
        client.step()
        assert client.num_live == 0
        assert client.call("requests", result_type=RequestTable).total == 0


def test_an_id_comes_back_at_once_with_its_stream_closed(configure: Configure) -> None:
    with InprocClient(configure()) as client:
        client.stream(request("x", 1000)).close()
        with pytest.raises(RequestRefused, match="no request"):
            client.stream("x")
        assert count(client.stream(request("x", 3))) == 3


def test_what_a_caller_does_with_its_lists_meanwhile_is_nothing_to_the_core(configure: Configure) -> None:
    prompt, params = list(range(40)), SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True, seed=0)
    with InprocClient(configure()) as client:
        for name in ("a", "b"):
            client.add(new_request(prompt, params, request_id=name))
        prompt.clear()
        params.max_tokens = params.seed = 90
        admitted = [client.core.scheduler.find(entry) for entry in ("a-1", "b-2")]
        assert [one.sampling_params.seed for one in admitted if one is not None] == [0, 0]
        assert [one.prompt_token_ids for one in admitted if one is not None] == [list(range(40))] * 2
        assert [count(client.stream(name)) for name in ("a", "b")] == [4, 4]


def test_what_cannot_be_sent_leaves_its_id_free(configure: Configure) -> None:
    with InprocClient(configure()) as client:
        odd = new_request([1, 2, 3], request_id="x")
        odd.prompt_token_ids = [object()]  # type: ignore[list-item]
        with pytest.raises(TypeError):
            client.add(odd)
        assert count(client.stream(request("x", 3))) == 3


def test_a_pause_that_waits_forgets_cached_prefixes_when_asked(configure: Configure) -> None:
    with InprocClient(configure()) as client:
        long = new_request(list(range(64)), SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
        client.add(long)
        client.step()
        client.call("pause_scheduler", "wait")
        assert client.num_live == 0
        assert client.core.scheduler.kv_cache.num_cached == 0


def test_a_paused_scheduler_is_told_and_goes_on_later(configure: Configure) -> None:
    with InprocClient(configure()) as client:
        client.call("pause_scheduler", "keep")
        assert client.call("is_scheduler_paused") is True
        stream = client.stream(request("x", 2))
        with pytest.raises(EngineError, match="x cannot go on"):
            next(stream)
        client.call("resume_scheduler")
        assert count(stream) == 2


@pytest.mark.e2e
def test_sleep_and_wake_up(configure: Configure) -> None:
    with InprocClient(configure("uniproc", kv_memory=2**20, num_gpu_blocks=None)) as client:
        before = [output.new_token_ids for output in client.stream(request("a", 5))]
        client.call("sleep", 2)
        assert client.call("is_sleeping") is True
        assert client.call("wake_up") is True
        assert [output.new_token_ids for output in client.stream(request("b", 5))] == before


def test_shutdown_finishes_or_aborts(configure: Configure) -> None:
    client = InprocClient(configure())
    client.add(request("x", 50))
    client.shutdown(timeout_s=20)
    *_, last = client.stream("x")
    assert last.finish_reason == FinishReason.LENGTH
    client.shutdown()

    client = InprocClient(configure("Slow"))
    client.add(request("x", 1500))
    client.shutdown(timeout_s=0.1)
    *_, last = client.stream("x")
    assert last.finish_reason == FinishReason.ABORT
    with pytest.raises(EngineDeadError, match="closed"):
        client.add(request())


def test_a_step_that_fails_is_a_death(configure: Configure) -> None:
    client = InprocClient(configure("Breaks"))
    client.add(request("other", 100))
    with pytest.raises(EngineDeadError, match="the third step breaks"):
        list(client.stream(request("x", 100)))
    attempts: list[Callable[[], object]] = [
        lambda: client.add(request()),
        lambda: client.abort("x"),
        lambda: client.call("is_sleeping"),
    ]
    for attempt in attempts:
        with pytest.raises(EngineDeadError, match="the third step breaks"):
            attempt()
    with pytest.raises(EngineDeadError):
        list(client.stream("other"))
    with pytest.raises(EngineDeadError):
        client.shutdown()
    client.close()


@pytest.mark.e2e
def test_memory_is_flat_over_five_lives(configure: Configure) -> None:
    """The second life pays for what torch keeps; after it the process does not grow."""
    config = configure("uniproc", kv_memory=16 * 2**20, num_gpu_blocks=None)
    seen = []
    for _ in range(5):
        with InprocClient(config) as client:
            assert count(client.stream(request(max_tokens=20))) == 20
        gc.collect()
        seen.append(psutil.Process().memory_info().rss / 2**20)
    assert gc.get_freeze_count() == 0
    assert seen[-1] - seen[1] < 8, seen  # MiB; one lost cache is 16
