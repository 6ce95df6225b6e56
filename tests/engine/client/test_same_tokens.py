"""One request, three ways to run it: the tokens are the same."""

from __future__ import annotations

import asyncio

import pytest

from engine.client import AsyncMPClient, EngineConfig, InprocClient, SamplingParams, SyncMPClient, new_request
from engine.client.launcher import Launch
from engine.messages import EngineCoreRequest

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("sockets")]

PROMPTS = [[5 + n, 17, 3 * n + 40, 99, 260 - n] for n in range(6)]


def requests() -> list[EngineCoreRequest]:
    """Greedy ones and seeded ones, of several lengths."""
    made = []
    for n, prompt in enumerate(PROMPTS):
        params = SamplingParams(temperature=0.0 if n % 2 else 0.9, seed=n, max_tokens=8 + n, ignore_eos=True)
        made.append(new_request(prompt, params))
    return made


@pytest.fixture(scope="module")
def config(tiny_model: object) -> EngineConfig:
    return EngineConfig(model=str(tiny_model), num_gpu_blocks=256, dtype="float32")


@pytest.fixture(scope="module")
def expected(config: EngineConfig) -> list[list[int]]:
    with InprocClient(config) as client:
        streams = [client.stream(request) for request in requests()]
        tokens = [[token for output in stream for token in output.new_token_ids] for stream in streams]
    assert [len(row) for row in tokens] == [8 + n for n in range(len(PROMPTS))]
    assert len({row[0] for row in tokens}) > 1  # not a constant
    return tokens


@pytest.mark.parametrize("launch", ["command", "process"])
def test_in_a_process_of_its_own(config: EngineConfig, expected: list[list[int]], launch: Launch) -> None:
    with SyncMPClient(config, launch=launch) as client:
        streams = [client.stream(request, timeout_s=60) for request in requests()]
        assert [[token for output in stream for token in output.new_token_ids] for stream in streams] == expected


def test_under_asyncio(config: EngineConfig, expected: list[list[int]]) -> None:
    async def main() -> list[list[int]]:
        async with AsyncMPClient(config, transport="tcp") as client:

            async def read(request: EngineCoreRequest) -> list[int]:
                return [
                    token async for output in client.stream(request, timeout_s=60) for token in output.new_token_ids
                ]

            return await asyncio.gather(*(read(request) for request in requests()))

    assert asyncio.run(main()) == expected


def test_one_after_the_other(config: EngineConfig, expected: list[list[int]]) -> None:
    with InprocClient(config) as client:
        tokens = [
            [token for output in client.stream(request) for token in output.new_token_ids] for request in requests()
        ]
    assert tokens == expected
