"""An engine process of our own, four threads that share it, one of them ended early.

usage: python examples/sync.py MODEL_DIR [PROMPT]"""

from __future__ import annotations

import sys
import threading

from tokenizers import Tokenizer

from engine.client import EngineConfig, FinishReason, SamplingParams, SyncMPClient, new_request


def main(model: str, prompt: str = "Once upon a time") -> None:
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    ids = tokenizer.encode(prompt).ids

    def generate(name: str, max_tokens: int) -> None:
        params = SamplingParams(temperature=0.8, seed=len(name), max_tokens=max_tokens, ignore_eos=True)
        tokens: list[int] = []
        for output in client.stream(new_request(ids, params, request_id=name)):
            tokens += output.new_token_ids
            if output.finish_reason is not None:
                reason = FinishReason(output.finish_reason)
                print(f"{name}: {len(tokens)} tokens, finished by {reason}: {tokenizer.decode(tokens)[:50]!r}")

    with SyncMPClient(EngineConfig(model=model, max_model_len=512, kv_memory=64 * 1024**2)) as client:
        print(f"engine {client.pid} is ready: {client.ready.num_gpu_blocks} blocks, {client.ready.dtype}")
        jobs = {"short": 8, "middle": 16, "long": 24, "hog": 400}
        threads = [threading.Thread(target=generate, args=job) for job in jobs.items()]
        for thread in threads:
            thread.start()
        for thread in threads[:-1]:
            thread.join()
        print(f"in flight: {client.call('requests')}")
        client.abort("hog")
        threads[-1].join()
        client.shutdown(timeout_s=5)


if __name__ == "__main__":
    main(*sys.argv[1:])
