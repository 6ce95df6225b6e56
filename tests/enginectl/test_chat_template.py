from __future__ import annotations

from pathlib import Path

import pytest

from enginectl.chat_template import render_chat
from enginectl.errors import UsageError
from enginectl.tokens import ModelTexts

HELLO = [{"role": "user", "content": "hello"}]


def texts(template: str | None) -> ModelTexts:
    return ModelTexts(chat_template=template, bos_token="<s>", eos_token="</s>")


def test_a_conversation_becomes_the_models_prompt() -> None:
    template = (
        "{{ bos_token }}{% for m in messages %}\n  [{{ m['role'] }}] {{ m['content'] | tojson }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    assert render_chat(texts(template), HELLO) == '<s>  [user] "hello"\n[assistant]'


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append('x') }}",
        "{% include '/etc/passwd' %}",
        "{{ cycler.__init__.__globals__.os.system('touch HERE') }}",
        "{{ 1 / 0 }}",
        "{% for %}",
        "{{ nothing.here }}",
    ],
)
def test_a_template_can_do_nothing_but_text(template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        render_chat(texts(template), HELLO)
    assert caught.value.exit == 2
    assert list(tmp_path.iterdir()) == []


def test_a_template_may_refuse_and_may_be_missing() -> None:
    with pytest.raises(UsageError, match="no system message"):
        render_chat(texts("{{ raise_exception('no system message') }}"), HELLO)
    with pytest.raises(UsageError, match="no chat template"):
        render_chat(texts(None), HELLO)
