"""What a GGUF file's metadata means: the config.json to write, and which of its tensors becomes which weight.

Enters: a checked GGUFFile. Leaves: a Plan. Touches no tensor data except the few numbers of the rope factors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.errors import ModelError
from engine.model.config import MAX_NUMBER
from engine.model.gguf_file import GGUFFile

_ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "mistral": ("MistralForCausalLM", "mistral"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}
_PERMUTED = ("llama", "mistral")
"""Their q and k rows are stored pairwise interleaved, for llama.cpp's rope."""
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_ROPE_FACTORS = "rope_freqs.weight"
_LLAMA3_LENGTH, _LLAMA3_LOW, _LLAMA3_HIGH = 8192, 1.0, 4.0


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    source: str
    shape: tuple[int, ...]
    heads: int = 0
    """More than 0: the rows are to be put back in order, for so many heads."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Plan:
    config: dict[str, object]
    generation: dict[str, object]
    entries: list[Entry]
    dtype: str


def plan_conversion(file: GGUFFile, dtype: str) -> Plan:
    """Raises ModelError when the model is not of the Llama family or a tensor is missing."""
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        raise ModelError(
            f"{file.path}: architecture {name!r} is not supported; supported are {', '.join(_ARCHITECTURES)}"
        )
    if file.metadata.get(f"{name}.expert_count", 0):
        raise ModelError(f"{file.path}: mixture-of-experts models are not supported")
    config = _config(file, name, dtype)
    entries = _entries(file, name, config)
    return Plan(config, _generation(file, config), entries, dtype)


def _generation(file: GGUFFile, config: dict[str, object]) -> dict[str, object]:
    """A chat model may end its turn with another token than its text: both stop a generation."""
    ends = [config["eos_token_id"], *(file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom"))]
    ids = list(dict.fromkeys(end for end in ends if isinstance(end, int)))
    found: dict[str, object] = {"eos_token_id": ids[0] if len(ids) == 1 else ids} if ids else {}
    return found if config["bos_token_id"] is None else {"bos_token_id": config["bos_token_id"], **found}


def _config(file: GGUFFile, name: str, dtype: str) -> dict[str, object]:
    architecture, model_type = _ARCHITECTURES[name]
    heads = _count(file, f"{name}.attention.head_count")
    hidden = _count(file, f"{name}.embedding_length")
    head_dim = _count(file, f"{name}.attention.key_length", hidden // heads)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelError(f"{file.path}: tensor 'token_embd.weight' is missing or not a matrix; download it again")
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": _count(file, f"{name}.feed_forward_length"),
        "num_hidden_layers": _count(file, f"{name}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _count(file, f"{name}.attention.head_count_kv", heads),
        "head_dim": head_dim,
        "max_position_embeddings": _count(file, f"{name}.context_length"),
        "rms_norm_eps": _number(file, f"{name}.attention.layer_norm_rms_epsilon", 1e-5),
        "rope_theta": _number(file, f"{name}.rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(file, name, head_dim),
        "sliding_window": file.metadata.get(f"{name}.attention.sliding_window"),
        "hidden_act": "silu",
        "attention_bias": name != "qwen2" and "blk.0.attn_q.bias" in file.tensors,
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "torch_dtype": dtype,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
    }


def _rope_scaling(file: GGUFFile, name: str, head_dim: int) -> dict[str, object] | None:
    """Llama 3 files hold a divisor per frequency; the four numbers behind it are found again and checked."""
    kind = file.metadata.get(f"{name}.rope.scaling.type", "none")
    factors_tensor = file.tensors.get(_ROPE_FACTORS)
    if kind not in ("none", "llama3") and factors_tensor is None:
        raise ModelError(f"{file.path}: rope scaling {kind!r} is not supported, only Llama 3's")
    if _count(file, f"{name}.rope.dimension_count", head_dim) != head_dim:
        raise ModelError(f"{file.path}: rope over a part of each head is not supported")
    if factors_tensor is None:
        _refuse_linear(file, name)
        return None
    factors = file.data(factors_tensor, 0, 1)[0]
    theta = _number(file, f"{name}.rope.freq_base", 10000.0)
    factor = float(factors.max())
    expected = llama3_divisors(head_dim, theta, factor, _LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_LENGTH)
    if factors.shape != expected.shape or not np.allclose(factors, expected, rtol=1e-3):
        raise ModelError(f"{file.path}: the factors in {_ROPE_FACTORS!r} are not those of Llama 3; not supported")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LLAMA3_LOW,
        "high_freq_factor": _LLAMA3_HIGH,
        "original_max_position_embeddings": _LLAMA3_LENGTH,
    }


def _refuse_linear(file: GGUFFile, name: str) -> None:
    """A factor without a type means linear scaling, under its present or its older name."""
    if f"{name}.rope.scaling.type" in file.metadata:
        return
    for key in (f"{name}.rope.scaling.factor", f"{name}.rope.scale_linear"):
        if file.metadata.get(key, 1) not in (0, 1):
            raise ModelError(f"{file.path}: {key} is {file.metadata[key]!r}: linear rope scaling is not supported")


def llama3_divisors(head_dim: int, theta: float, factor: float, low: float, high: float, length: int) -> np.ndarray:
    """(head_dim / 2,) float64: what each rope frequency is divided by."""
    wavelength = 2 * np.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    smooth = np.clip((length / wavelength - low) / (high - low), 0.0, 1.0)
    return np.asarray(1.0 / ((1 - smooth) / factor + smooth))


def _entries(file: GGUFFile, name: str, config: dict[str, object]) -> list[Entry]:
    """Every tensor that is a weight, in an order that a reader meets layer by layer. Shapes are the loader's check."""
    layers = int(str(config["num_hidden_layers"]))
    heads = {"attn_q": int(str(config["num_attention_heads"])), "attn_k": int(str(config["num_key_value_heads"]))}
    entries = []
    for source, target in _TOP_NAMES.items():
        if source in file.tensors:
            entries.append(Entry(target, source, file.tensors[source].shape))
        elif source != "output.weight":
            raise ModelError(f"{file.path}: tensor {source!r} is missing; download it again")
    for layer in range(layers):
        found = _layer_entries(file, layer, heads if name in _PERMUTED else {})
        if not found:
            raise ModelError(f"{file.path}: no tensor of layer {layer} of {layers}; download it again")
        entries += found
    unused = sorted(file.tensors.keys() - {entry.source for entry in entries} - {_ROPE_FACTORS})
    if unused:
        more = f" and {len(unused) - 1} more" if unused[1:] else ""
        raise ModelError(f"{file.path}: tensor {unused[0]!r}{more} has no place in a model of this kind; not supported")
    return entries


def _layer_entries(file: GGUFFile, layer: int, heads: dict[str, int]) -> list[Entry]:
    entries = []
    for part, target in _LAYER_NAMES.items():
        for suffix in ("weight", "bias"):
            tensor = file.tensors.get(f"blk.{layer}.{part}.{suffix}")
            if tensor is None or (suffix == "bias" and not part.startswith("attn_")):
                continue
            count = heads.get(part, 0)
            if count and tensor.shape[0] % (2 * count):
                raise ModelError(
                    f"{file.path}: {tensor.name} has {tensor.shape[0]} rows, not a share for {count} heads"
                )
            entries.append(Entry(f"model.layers.{layer}.{target}.{suffix}", tensor.name, tensor.shape, count))
    return entries


def _count(file: GGUFFile, key: str, default: int | None = None) -> int:
    value = file.metadata.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 24:
        raise ModelError(f"{file.path}: {key} is {value!r}, a count was expected; download it again")
    return value


def _number(file: GGUFFile, key: str, default: float) -> float:
    value = file.metadata.get(key, default)
    if not isinstance(value, (int, float)) or not 0 < value < MAX_NUMBER:
        raise ModelError(f"{file.path}: {key} is {value!r}, a positive number was expected; download it again")
    return float(value)
