"""Large outputs of a real engine process through real sockets: whole and in order, however slowly they are read."""

from __future__ import annotations

import time
import zlib
from pathlib import Path

import pytest

from engine.messages import EngineCoreOutput, FinishReason
from tests.support.engine_process import Running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
TOKENS = 1250
REQUESTS = 8


def check(output: EngineCoreOutput) -> None:
    """`ranks` is the checksum of the other two arrays, which are over 64 KiB together."""
    logprobs = output.new_logprobs
    assert logprobs is not None
    ids, values = logprobs.token_ids.data, logprobs.logprobs.data
    assert len(ids) == len(values) == 33_000
    assert int.from_bytes(logprobs.ranks.data, "little") == zlib.crc32(ids + values)


def test_ten_thousand_outputs_over_64_kib_against_a_slow_reader(tiny_model: Path) -> None:
    options = {"executor": "tests.support.executors:ChecksumExecutor", "client_byte_budget": "1GiB"}
    with Running(tiny_model, output_hwm=2, num_gpu_blocks=256, **options) as running:
        frontend = running.frontend
        for number in range(REQUESTS):
            found = frontend.add(f"large-{number}", [5, 6, 7], max_tokens=TOKENS, logprobs=1)
            while not found.is_finished:
                frontend._take(frontend.recv_output(), 0)
                if len(found.outputs) % 10 == 0:
                    time.sleep(0.001)  # the reader's slowness, not a wait for anything
            assert found.finish_reason is FinishReason.LENGTH and len(found.outputs) == TOKENS
            for output in found.outputs:
                check(output)
            found.outputs.clear()
            frontend.messages.clear()
        stats = frontend.call("stats")
        assert isinstance(stats, dict) and stats["dropped_outputs"] == 0
