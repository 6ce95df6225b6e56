"""`enginectl chat`: a conversation on a terminal, or one turn from an argument or stdin.

Owns the conversation; Ctrl-C aborts just one answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from enginectl import sampling
from enginectl.chat_template import Message, render_chat
from enginectl.client import Engine
from enginectl.commands.generate import Writer, summary
from enginectl.context import connect
from enginectl.errors import GenerationFailed, UsageError
from enginectl.generating import Generation, model_directory
from enginectl.options import EngineOption, Format, OutputOption
from enginectl.output import out
from enginectl.sampling import make_params
from enginectl.tokens import load_texts, load_tokenizer

ENDS = ("/exit", "/bye", "/quit")
FORGETS = ("/reset", "/clear")
HELP = (
    "/help   show this",
    "/reset  forget the conversation (or /clear); the system message stays",
    "/exit   end (or /bye, /quit, Ctrl-D)",
    "Ctrl-C  end the answer that comes; at the prompt: end",
)
EXAMPLES = ("enginectl chat", "echo 'Name three rivers.' | enginectl chat --max-tokens 60")


def command(
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROMPT]", show_default=False, help="One turn; alone a conversation, off a terminal stdin."
        ),
    ] = None,
    system: Annotated[str | None, typer.Option("--system", show_default=False, help="The system message.")] = None,
    max_tokens: sampling.MaxTokens = 512,
    temperature: sampling.Temperature = 0.7,
    top_p: sampling.TopP = 0.95,
    top_k: sampling.TopK = 0,
    min_p: sampling.MinP = 0.0,
    seed: sampling.Seed = None,
    stop: sampling.Stop = None,
    repetition_penalty: sampling.Repetition = 1.0,
    priority: sampling.Priority = 0,
    engine: EngineOption = None,
    output: OutputOption = Format.text,
) -> None:
    """Talk with the engine's model, by its own chat template. /help lists commands, Ctrl-D ends."""
    with connect(engine) as connected:
        talk = Conversation(connected, model_directory(connected), system, stop or [], priority)
        talk.params = make_params(
            talk.texts,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            seed=seed,
            repetition_penalty=repetition_penalty,
        )
        if prompt is None and sys.stdin.isatty() and out.stdout.isatty() and not out.json:
            return talk.go_on()
        words = prompt if prompt not in (None, "-") else sys.stdin.buffer.read().decode("utf-8", "replace").strip()
        if not words:
            raise UsageError("nothing was said", try_=["enginectl chat 'Hello'"])
        writer = Writer()
        writer.report(connected.name, talk.say(words, writer))
    return None


class Conversation:
    """The messages so far, and how the next is answered."""

    def __init__(self, engine: Engine, directory: Path, system: str | None, stops: list[str], priority: int) -> None:
        self.engine = engine
        self.texts = load_texts(directory)
        self.params = make_params(self.texts, max_tokens=512)
        self._tokenizer = load_tokenizer(directory)
        self._system: list[Message] = [{"role": "system", "content": system}] if system else []
        self._messages: list[Message] = list(self._system)
        self._stops = stops
        self._priority = priority

    def say(self, words: str, writer: Writer) -> Generation:
        """One turn; on failure the turn is forgotten."""
        turn: Message = {"role": "user", "content": words}
        text = render_chat(self.texts, [*self._messages, turn])
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        made = writer.run(self.engine, ids, self.params, self._tokenizer, self._stops, self._priority)
        self._messages += [turn, {"role": "assistant", "content": made.text or ""}]
        return made

    def go_on(self) -> None:
        """Until Ctrl-D or /exit. Ctrl-C during an answer ends that answer only."""
        import contextlib

        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  line editing in input()
        out.say(f"talking with {self.engine.name}; /help lists commands, Ctrl-C ends one answer, Ctrl-D the talk")
        while True:
            try:
                words = input("> ").strip()
            except EOFError:
                return out.say("")
            if words in ENDS:
                return None
            self._take(words)

    def _take(self, words: str) -> None:
        """One line: a command of ours, a mistyped one, or something for the model."""
        if words in FORGETS:
            self._messages = list(self._system)
            out.say("forgotten")
        elif words == "/help":
            out.say(*HELP)
        elif words.startswith("/") and "/" not in words[1:] and " " not in words:
            out.say(f"no command {words}; /help lists them")
        elif words:
            self._answer(words)

    def _answer(self, words: str) -> None:
        writer = Writer()
        try:
            out.say(summary(self.say(words, writer)))
        except KeyboardInterrupt:
            out.say("that answer was aborted; the engine goes on")
        except (GenerationFailed, UsageError) as error:
            out.error_text(error)
