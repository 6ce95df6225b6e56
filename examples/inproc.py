"""The engine core in this process: no sockets, no second process, one thread.

usage: python examples/inproc.py MODEL_DIR [PROMPT]"""

from __future__ import annotations

import sys

from tokenizers import Tokenizer

from engine.client import EngineConfig, InprocClient, SamplingParams, new_request


def main(model: str, prompt: str = "The history of the Roman Empire begins with") -> None:
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    with InprocClient(EngineConfig(model=model, max_model_len=512, kv_memory=64 * 1024**2)) as client:
        ids = tokenizer.encode(prompt).ids
        # Two requests in one batch: reading either of the streams moves both.
        greedy = client.stream(new_request(ids, SamplingParams(temperature=0.0, max_tokens=24)))
        warm = client.stream(new_request(ids, SamplingParams(temperature=0.8, seed=7, max_tokens=24)))
        for name, stream in (("greedy", greedy), ("seed 7", warm)):
            tokens = [token for output in stream for token in output.new_token_ids]
            print(f"{name}: {prompt}{tokenizer.decode(tokens)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
