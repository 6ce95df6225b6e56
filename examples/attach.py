"""Attach to an engine that `enginectl start NAME` runs, from any program, through its supervisor's control socket.

usage: python examples/attach.py NAME [PROMPT]"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers import Tokenizer

from engine.messages import SamplingParams
from enginectl.client import connect
from enginectl.errors import CtlError


def main(name: str = "default", prompt: str = "The sea is") -> None:
    with connect(name) as engine:
        view = engine.status()
        print(f"{view.name}: {view.state}")
        description = engine.call("describe")
        assert isinstance(description, dict)
        tokenizer = Tokenizer.from_file(str(Path(str(description["model"])) / "tokenizer.json"))
        stream = engine.generate(tokenizer.encode(prompt).ids, SamplingParams(temperature=0.0, max_tokens=24))
        tokens = [token for chunk in stream for token in chunk.token_ids]
        print(prompt + tokenizer.decode(tokens))
        for request in engine.requests():
            print(request.id, request.state, request.output_tokens)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except CtlError as error:
        sys.exit(f"{error.id}: {error.message}")
