"""A GGUF file's tokens and merges become tokenizer.json and tokenizer_config.json.

Enters: checked metadata. Leaves: two JSON files in a directory. What is not known for certain is refused: a wrong
pre-tokenizer gives wrong tokens in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from engine.errors import ModelError
from engine.model.gguf_file import GGUFFile, Value

_CONTROL, _USER_DEFINED = 3, 4
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LLAMA3 = _WORDS + r"\p{N}{1,3}" + _TAIL
_QWEN2 = _WORDS + r"\p{N}" + _TAIL
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": _TEKKEN,
}
_SINGLE_DIGITS = ("smollm", "starcoder", "refact")
_GPT2 = ("gpt-2", "gpt2")
_KEEPS_WHOLE_WORDS = ("llama-bpe", "llama-v3", "llama3", "tekken")
"""A word that is a token as a whole is taken before any merge."""


def write_tokenizer(file: GGUFFile, directory: Path) -> None:
    """Raises ModelError when the file's tokenizer is of a kind that is not known here."""
    metadata = file.metadata
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ModelError(f"{file.path}: tokenizer model {kind!r} is not supported, only byte-level BPE ('gpt2')")
    tokens = _strings(file, "tokenizer.ggml.tokens")
    pre = metadata.get("tokenizer.ggml.pre")
    if not isinstance(pre, str):
        raise ModelError(
            f"{file.path}: it does not say how it cuts text into words (tokenizer.ggml.pre); an old converter made it, "
            "take a newer file of this model"
        )
    tokenizer = _build(file, tokens, pre)
    names = {role: _special(file, role, tokens) for role in ("bos", "eos", "unknown", "padding")}
    add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", pre in _KEEPS_WHOLE_WORDS)) and bool(names["bos"])
    if add_bos:
        bos = str(names["bos"])
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, tokens.index(bos))]
        )
    tokenizer.save(str(directory / "tokenizer.json"))
    _write_settings(directory, metadata, names, add_bos)


def _build(file: GGUFFile, tokens: list[str], pre: str) -> Tokenizer:
    ids = {token: index for index, token in enumerate(tokens)}
    if len(ids) != len(tokens):
        raise ModelError(f"{file.path}: the token list has {len(tokens) - len(ids)} doubles; download it again")
    merges = _merges(file, ids)
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=pre in _KEEPS_WHOLE_WORDS))
    tokenizer.pre_tokenizer = _pre_tokenizer(file, pre)
    if pre in ("qwen2", "deepseek-r1-qwen"):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    kinds = file.metadata.get("tokenizer.ggml.token_type", [])
    if isinstance(kinds, list):
        added = [(token, kind) for token, kind in zip(tokens, kinds, strict=False) if kind in (_CONTROL, _USER_DEFINED)]
        for special in (True, False):
            wanted = [token for token, kind in added if (kind == _CONTROL) is special and token]
            entries = [AddedToken(token, special=special, normalized=False) for token in wanted]
            (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(entries)
    return tokenizer


def _pre_tokenizer(file: GGUFFile, pre: str) -> pre_tokenizers.PreTokenizer:
    if pre in _GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre in _SINGLE_DIGITS:
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if pre in _SPLITS:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_SPLITS[pre]), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    known = ", ".join((*_GPT2, *_SINGLE_DIGITS, *_SPLITS))
    raise ModelError(f"{file.path}: pre-tokenizer {pre!r} is not known; known are {known}")


def _merges(file: GGUFFile, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    pairs = []
    for line in _strings(file, "tokenizer.ggml.merges"):
        left, _, right = line.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise ModelError(f"{file.path}: merge {line[:80]!r} names an unknown token; download it again")
        pairs.append((left, right))
    return pairs


def _strings(file: GGUFFile, key: str) -> list[str]:
    value = file.metadata.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise ModelError(f"{file.path}: {key} is missing or not a list of strings; the file has no usable tokenizer")
    return [str(item) for item in value]


def _special(file: GGUFFile, role: str, tokens: list[str]) -> str | None:
    index = file.metadata.get(f"tokenizer.ggml.{role}_token_id")
    if index is None:
        return None
    if not isinstance(index, int) or not 0 <= index < len(tokens):
        raise ModelError(f"{file.path}: the {role} token id {index!r} is outside the {len(tokens)} tokens")
    return tokens[index]


def _write_settings(
    directory: Path, metadata: Mapping[str, Value], names: dict[str, str | None], add_bos: bool
) -> None:
    settings: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": add_bos}
    wire_names = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
    settings.update({wire_names[role]: name for role, name in names.items() if name})
    template = metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        settings["chat_template"] = template
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=2, ensure_ascii=False))
