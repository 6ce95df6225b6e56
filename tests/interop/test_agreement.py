"""The same greedy tokens from our engine and from vLLM's, as far as rounding lets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.peer import START_S
from tests.interop.test_their_engine import python
from tests.support.ctl import Ctl

PROMPTS = (
    "The history of the Roman Empire begins with", "The capital of France is", "Water boils at", "Once upon a time",
    "def fibonacci(n):", "The three primary colours are", "In 1969, the first", "To make bread you need",
    "The largest planet of the solar system is", "My favourite book is",
)  # fmt: skip
TOKENS = 16
AT_LEAST = {"float32": 10, "bfloat16": 8}
"""Of the ten; a near tie may fall to the other side in another order of additions."""


def generated(ctl: Ctl, name: str) -> list[list[int]]:
    found = []
    for prompt in PROMPTS:
        text = ctl.ok("generate", "-e", name, prompt, "--max-tokens", str(TOKENS), "--temperature", "0", "--ignore-eos",
                      "-o", "json", timeout_s=180)  # fmt: skip
        found.append(text.document["token_ids"])
    return found


@pytest.mark.parametrize("dtype", AT_LEAST)
def test_ten_prompts(ctl: Ctl, model: Path, dtype: str) -> None:
    shape = ["--set", "max_model_len=512", "--set", "max_num_seqs=1", "--set", f"dtype={dtype}", "--timeout", "10m"]
    ctl.ok("start", "ours", "--model", str(model), *shape, "--set", "num_gpu_blocks=64", timeout_s=START_S)
    ours = generated(ctl, "ours")
    ctl.ok("stop", "ours", "--yes")
    ctl.ok("start", "theirs", "--engine", "vllm", "--python", python(), "--model", str(model), *shape, "--",
           "--enforce-eager", timeout_s=START_S)  # fmt: skip
    theirs = generated(ctl, "theirs")
    ctl.ok("stop", "theirs", "--yes", timeout_s=60)
    differ = {}
    for prompt, a, b in zip(PROMPTS, ours, theirs, strict=True):
        print(f"{prompt!r}: ours {a} theirs {b}")
        if a != b:
            pairs = enumerate(zip(a, b, strict=False))
            differ[prompt] = next((place for place, (left, right) in pairs if left != right), -1)
    print(f"{dtype}: differ from token: {differ}")
    assert len(PROMPTS) - len(differ) >= AT_LEAST[dtype], differ
