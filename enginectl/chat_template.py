"""A conversation becomes the prompt text that a model was trained on, by its own template, in a sandbox.

Templates come from model directories, so nothing they say is trusted: jinja2's immutable sandbox, no loader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from enginectl.errors import UsageError
from enginectl.models import ModelUnusable
from enginectl.tokens import ModelTexts

Message = dict[str, str]
"""{"role": "system" | "user" | "assistant", "content": text}"""


def render_chat(texts: ModelTexts, messages: Sequence[Message]) -> str:
    """Prompt text, special tokens included, ready for the assistant's turn. Raises UsageError, ModelUnusable."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    if texts.chat_template is None:
        raise UsageError("this model has no chat template", try_=["enginectl generate PROMPT"])
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, loader=None)
    environment.globals["raise_exception"] = _refuse
    environment.filters["tojson"] = _to_json
    try:
        template = environment.from_string(texts.chat_template)
        return template.render(
            messages=[dict(message) for message in messages],
            add_generation_prompt=True,
            bos_token=texts.bos_token,
            eos_token=texts.eos_token,
            tools=None,
            documents=None,
        )
    except UsageError:
        raise
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise ModelUnusable(
            "the model's chat template does not work",
            cause=f"{type(error).__name__}: {error}",
            try_=["enginectl generate PROMPT"],
        ) from None


def _refuse(message: str) -> NoReturn:
    raise UsageError(f"the model's chat template refuses this conversation: {message}")


def _to_json(value: object, indent: int | None = None) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=indent)
