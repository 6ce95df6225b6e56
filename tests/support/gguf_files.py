"""GGUF files made from a tiny model directory, for the converter's tests."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import load_file

NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def write_gguf(model: Path, file: Path, kind: str = "F32", pre: str | None = "smollm", **metadata: object) -> Path:
    """The model in `model` as one GGUF file with its matrices in `kind`; `metadata` adds keys."""
    config = json.loads((model / "config.json").read_text())
    arch = "llama" if config["model_type"] == "mistral" else config["model_type"]
    writer = gguf.GGUFWriter(file, arch)
    _write_metadata(writer, config, model, pre)
    for key, value in metadata.items():
        writer.add_key_value(key.replace("__", "."), value, _value_type(value))
    for name, values in load_file(model / "model.safetensors").items():
        _write_tensor(writer, name, values, gguf.GGMLQuantizationType[kind], config, arch)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_metadata(writer: gguf.GGUFWriter, config: dict[str, object], model: Path, pre: str | None) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    tokenizer = json.loads((model / "tokenizer.json").read_text())["model"]
    tokens = sorted(tokenizer["vocab"], key=tokenizer["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")


def _write_tensor(
    writer: gguf.GGUFWriter,
    name: str,
    values: np.ndarray,
    kind: gguf.GGMLQuantizationType,
    config: dict[str, object],
    arch: str,
) -> None:
    if name in TOP:
        target = TOP[name]
    else:
        _, _, layer, part = name.split(".", 3)
        stem, suffix = part.rsplit(".", 1)
        target = f"blk.{layer}.{NAMES[stem]}.{suffix}"
        heads = {"self_attn.q_proj": "num_attention_heads", "self_attn.k_proj": "num_key_value_heads"}.get(stem)
        if heads and arch == "llama":
            values = interleave(values, int(str(config[heads])))
    if values.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
        writer.add_tensor(target, values)
    else:
        writer.add_tensor(target, gguf.quants.quantize(values, kind), raw_dtype=kind)


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """The order in which llama.cpp keeps q and k of Llama: the two halves of each head's rows by turns."""
    return np.concatenate([np.stack(np.split(head, 2), 1).reshape(head.shape) for head in np.split(rows, heads)])


def _value_type(value: object) -> gguf.GGUFValueType:
    kinds = {bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32, str: gguf.GGUFValueType.STRING}
    return kinds[type(value)]
