"""For a venv with llama-cpp-python: tokens/s of one request through llama.cpp, a JSON list with a figure a round.

usage: python bench_llama_cpp.py FILE.gguf THREADS ROUNDS TOKENS PROMPT_ID...
Only the model's own step is counted, `eval` of one token after the other: no choice in Python slows it. Needs nothing
of this project."""

from __future__ import annotations

import json
import sys
import time

from llama_cpp import Llama  # type: ignore[import-not-found]


def main() -> None:
    file, threads, rounds, tokens, *prompt = sys.argv[1:]
    model = Llama(file, n_threads=int(threads), n_threads_batch=int(threads), n_ctx=2048, verbose=False)
    found = []
    for _ in range(int(rounds)):
        model.reset()
        model.eval([int(token) for token in prompt])
        began = time.perf_counter()
        for token in range(int(tokens)):
            model.eval([100 + token])
        found.append(round(int(tokens) / (time.perf_counter() - began), 2))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
