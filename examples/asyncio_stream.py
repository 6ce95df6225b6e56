"""An engine process of our own under asyncio: several streams at once, each token as it comes.

usage: python examples/asyncio_stream.py MODEL_DIR [PROMPT ...]"""

from __future__ import annotations

import asyncio
import sys

from tokenizers import Tokenizer

from engine.client import AsyncMPClient, EngineConfig, EngineDeadError, SamplingParams, new_request


async def tell(client: AsyncMPClient, tokenizer: Tokenizer, prompt: str) -> str:
    request = new_request(tokenizer.encode(prompt).ids, SamplingParams(temperature=0.0, max_tokens=24))
    tokens: list[int] = []
    async for output in client.stream(request, timeout_s=60):
        tokens += output.new_token_ids
        print(f"[{prompt}]{tokenizer.decode(output.new_token_ids)}", end="  ", flush=True)
    return prompt + tokenizer.decode(tokens)


async def main(model: str, *prompts: str) -> None:
    tokenizer = Tokenizer.from_file(f"{model}/tokenizer.json")
    config = EngineConfig(model=model, max_model_len=512, kv_memory=64 * 1024**2)
    try:
        async with AsyncMPClient(config) as client:
            asked = prompts or ("The sea is", "A good book is", "Two and two are")
            texts = await asyncio.gather(*(tell(client, tokenizer, prompt) for prompt in asked))
    except EngineDeadError as error:
        sys.exit(f"the engine died: {error}")
    print("", *texts, sep="\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
