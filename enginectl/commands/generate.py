"""`enginectl generate`: one generation, streamed to stdout. Ctrl-C aborts just this request."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from engine.messages import SamplingParams
from enginectl import sampling, text
from enginectl.client import Engine
from enginectl.context import connect
from enginectl.errors import CtlError, Exit, UsageError
from enginectl.generating import Generation, generate, model_directory
from enginectl.options import EngineOption, Format, OutputOption
from enginectl.output import out, plain
from enginectl.sampling import make_params
from enginectl.text import printable
from enginectl.tokens import ModelTexts, load_texts, load_tokenizer, parse_ids

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EXAMPLES = (
    "enginectl generate 'Once upon a time' --max-tokens 50",
    "cat prompt.txt | enginectl generate - --temperature 0",
)
MAX_PROMPT_BYTES = 64 * 1024**2


def command(
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="[PROMPT]", show_default=False, help="The text to go on from; - reads stdin."),
    ] = None,
    max_tokens: sampling.MaxTokens = 128,
    min_tokens: sampling.MinTokens = 0,
    temperature: sampling.Temperature = 1.0,
    top_p: sampling.TopP = 1.0,
    top_k: sampling.TopK = 0,
    min_p: sampling.MinP = 0.0,
    seed: sampling.Seed = None,
    stop: sampling.Stop = None,
    stop_token_id: sampling.StopTokenId = None,
    logprobs: sampling.LogprobsOption = None,
    presence_penalty: sampling.Presence = 0.0,
    frequency_penalty: sampling.Frequency = 0.0,
    repetition_penalty: sampling.Repetition = 1.0,
    logit_bias: sampling.LogitBias = None,
    ignore_eos: sampling.IgnoreEos = False,
    priority: sampling.Priority = 0,
    ids: Annotated[bool, typer.Option("--ids", help="PROMPT is token ids, and so is what is printed.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="With -o json: a JSON line for each piece, not one document.")
    ] = False,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Generate from a prompt and print the text as it comes. Ctrl-C aborts just this request."""
    words = _read_prompt(prompt)
    if ids and stop:
        raise UsageError("--stop is text; with --ids use --stop-token-id")
    with connect(engine) as connected:
        prompt_ids, texts, tokenizer = _tokenize(connected, words, ids=ids)
        params = make_params(
            texts,
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            stop_token_ids=stop_token_id or (),
            logprobs=logprobs,
            presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty,
            repetition_penalty=repetition_penalty,
            logit_bias=logit_bias or (),
            ignore_eos=ignore_eos,
        )
        writer = Writer(stream=stream)
        try:
            made = writer.run(connected, prompt_ids, params, tokenizer, stop or [], priority)
        except KeyboardInterrupt:
            raise CtlError("this request was aborted; the engine goes on", id="E1901", exit=Exit.INTERRUPTED) from None
    writer.report(connected.name, made)


def _read_prompt(prompt: str | None) -> str:
    if prompt is None:
        if sys.stdin.isatty():
            raise UsageError(
                "no prompt given", try_=["enginectl generate 'Once upon a time'", "enginectl generate - < FILE"]
            )
        prompt = "-"
    if prompt != "-":
        return prompt
    data = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
    if len(data) > MAX_PROMPT_BYTES:
        raise UsageError(f"the prompt on stdin is larger than {text.size(MAX_PROMPT_BYTES)}")
    return data.decode("utf-8", "replace")


def _tokenize(engine: Engine, words: str, *, ids: bool) -> tuple[list[int], ModelTexts, Tokenizer | None]:
    """Prompt ids, and what turns the answer into text; no tokenizer when ids go out too. Raises UsageError."""
    if ids:
        prompt_ids, texts, tokenizer = parse_ids(words), _texts_if_there(engine), None
    else:
        directory = model_directory(engine)
        texts, tokenizer = load_texts(directory), load_tokenizer(directory)
        prompt_ids = tokenizer.encode(words).ids
    if not prompt_ids:
        raise UsageError("the prompt is empty")
    return prompt_ids, texts, tokenizer


def _texts_if_there(engine: Engine) -> ModelTexts:
    """With --ids the model's own end token still ends it, where the model is on this host."""
    try:
        return load_texts(model_directory(engine))
    except UsageError:
        return ModelTexts()


class Writer:
    """Where pieces go: stdout as text, JSON lines, or nowhere when one document follows."""

    def __init__(self, *, stream: bool = False) -> None:
        self._lines = stream and out.json
        self._wrote = ""

    def emit(self, piece: str) -> None:
        if self._lines:
            out.line("chunk", {"text": piece})
        elif not out.json:
            self._wrote = piece
            out.raw(printable(piece) if out.stdout.isatty() else piece)

    def run(
        self,
        engine: Engine,
        prompt_ids: list[int],
        params: SamplingParams,
        tokenizer: Tokenizer | None,
        stops: list[str],
        priority: int,
    ) -> Generation:
        try:
            return generate(
                engine,
                prompt_ids,
                params,
                tokenizer=tokenizer,
                stops=stops,
                emit=self.emit,
                say=self.say,
                priority=priority,
            )
        finally:
            self.finish_line()

    def say(self, words: str) -> None:
        """On a line of its own, also where the text goes to the same terminal."""
        if out.stdout.isatty():
            self.finish_line()
        out.say(words)

    def finish_line(self) -> None:
        if self._wrote and not self._wrote.endswith("\n"):
            out.raw("\n")
        self._wrote = ""

    def report(self, name: str, made: Generation) -> None:
        fields: dict[str, object] = {
            "name": name,
            "request_id": made.request_id,
            "text": made.text,
            "token_ids": made.token_ids,
            "finish_reason": made.finish_reason,
            "stop_reason": made.stop_reason,
        }
        if made.logprobs:
            fields["logprobs"] = made.logprobs
        if made.end is not None:
            fields = plain(made.end) | fields
        if self._lines:
            out.line("end", fields)
        else:
            out.document("Generation", fields)
        if not out.json:
            out.say(summary(made))


def summary(made: Generation) -> str:
    """`50 tokens in 1.2s, 41.7 tok/s, ttft 0.05s, finished: length`"""
    parts = [text.count(len(made.token_ids), "token")]
    if made.end is not None and made.end.total_s > 0:
        parts[0] += f" in {text.seconds(made.end.total_s)}"
        parts.append(f"{len(made.token_ids) / made.end.total_s:.1f} tok/s")
        if made.end.ttft_s is not None:
            parts.append(f"ttft {text.seconds(made.end.ttft_s)}")
    why = f" ({made.stop_reason!r})" if made.stop_reason is not None else ""
    return ", ".join([*parts, f"finished: {made.finish_reason}{why}"])
