"""Continuous batching in the whole core: many requests share steps, whatever their lengths."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.client import EngineConfig, InprocClient
from engine.messages import EngineCoreRequest, SamplingParams

pytestmark = pytest.mark.thread
LENGTHS = [20 + (7 * number) % 41 for number in range(32)]


def test_32_requests_take_at_most_a_fifth_more_steps_than_the_longest(tiny_model: Path) -> None:
    config = EngineConfig(model=str(tiny_model), dtype="float32", num_gpu_blocks=512, max_num_seqs=64, threads=1)
    with InprocClient(config) as client:
        for number, length in enumerate(LENGTHS):
            params = SamplingParams(temperature=0.0, max_tokens=length, ignore_eos=True)
            prompt = [5 + number + place for place in range(4 + number)]
            client.add(EngineCoreRequest(f"r{number}", prompt, sampling_params=params))
        before = client.core.scheduler.step
        got: dict[str, int] = {}
        while client.core.scheduler.has_unfinished:
            for outputs in client.core.step().values():
                for output in outputs:
                    got[output.request_id] = got.get(output.request_id, 0) + len(output.new_token_ids)
        steps = client.core.scheduler.step - before
    assert sorted(got.values()) == sorted(LENGTHS)
    assert max(LENGTHS) <= steps <= 1.2 * max(LENGTHS)
