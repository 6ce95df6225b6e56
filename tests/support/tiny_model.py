"""A directory with a tiny random model, enough to start a real engine in about a second. Under 1 MB, no torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_ID = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MERGES = ["Ġ t", "h e", "Ġt he", "i n", "a n", "e r", "Ġ a", "o n", "Ġa n", "r e", "l o", "Ġ w", "o r", "l d", "l l"]


def make_tiny_model(
    path: str | Path,
    arch: str = "llama",
    layers: int = 2,
    hidden: int = 64,
    vocab: int = 320,
    seed: int = 0,
    heads: int = 4,
    kv_heads: int = 2,
    intermediate: int = 128,
    max_position_embeddings: int = 2048,
    tie: bool = True,
    eos: bool = False,
    **extra: object,
) -> Path:
    """Writes config.json, model.safetensors, tokenizer.json, tokenizer_config.json and generation_config.json.
    Without `eos` the model names no end token, so greedy runs reach their max_tokens. `extra` goes into config.json."""
    directory = Path(path)
    directory.mkdir(parents=True, exist_ok=True)
    config: dict[str, object] = {
        "architectures": [ARCHITECTURES[arch]],
        "model_type": arch,
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": hidden // heads,
        "max_position_embeddings": max_position_embeddings,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": tie,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": EOS_ID if eos else None,
        **extra,
    }
    write_json(directory / "config.json", config)
    write_json(directory / "generation_config.json", {"eos_token_id": EOS_ID if eos else None, "bos_token_id": 1})
    save_file(random_weights(config, arch, seed), directory / "model.safetensors", metadata={"format": "pt"})
    write_tokenizer(directory, vocab)
    return directory


def random_weights(config: dict[str, object], arch: str, seed: int) -> dict[str, np.ndarray]:
    """Float32 weights whose greedy output wanders: layers strong enough that the last token alone does not decide."""
    rng = np.random.default_rng(seed)
    hidden, inner, vocab, layers, head_dim, heads, kv_heads = (
        int(str(config[key]))
        for key in (
            "hidden_size",
            "intermediate_size",
            "vocab_size",
            "num_hidden_layers",
            "head_dim",
            "num_attention_heads",
            "num_key_value_heads",
        )
    )

    def matrix(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": matrix(vocab, hidden, gain=4.0),
        "model.norm.weight": np.ones(hidden, np.float32),
    }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(vocab, hidden, gain=4.0)
    shapes = {
        "self_attn.q_proj": (heads * head_dim, hidden),
        "self_attn.k_proj": (kv_heads * head_dim, hidden),
        "self_attn.v_proj": (kv_heads * head_dim, hidden),
        "self_attn.o_proj": (hidden, heads * head_dim),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name, shape in shapes.items():
            weights[f"{prefix}{name}.weight"] = matrix(*shape, gain=2.0)
            if arch == "qwen2" and name[-6] in "qkv" and name.startswith("self_attn"):
                weights[f"{prefix}{name}.bias"] = rng.standard_normal(shape[0]).astype(np.float32) * np.float32(0.2)
        for name, size in (("input_layernorm", hidden), ("post_attention_layernorm", hidden)):
            weights[f"{prefix}{name}.weight"] = (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)
        if arch == "qwen3":
            for name in ("self_attn.q_norm", "self_attn.k_norm"):
                weights[f"{prefix}{name}.weight"] = (1 + 0.1 * rng.standard_normal(head_dim)).astype(np.float32)
    return weights


def write_tokenizer(directory: Path, vocab: int) -> None:
    """Byte-level BPE: three specials, the 256 bytes, a few merges, then unused fillers up to `vocab`."""
    tokens = {name: index for index, name in enumerate(SPECIALS)}
    for symbol in sorted(pre_tokenizers.ByteLevel.alphabet()):
        tokens[symbol] = len(tokens)
    merges = []
    for left, right in (merge.split(" ") for merge in MERGES):
        if len(tokens) < vocab and left in tokens and right in tokens:
            tokens[left + right] = len(tokens)
            merges.append((left, right))
    while len(tokens) < vocab:
        tokens[f"<filler_{len(tokens)}>"] = len(tokens)
    tokenizer = Tokenizer(models.BPE(tokens, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    tokenizer.save(str(directory / "tokenizer.json"))
    write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIALS[1],
            "eos_token": SPECIALS[2],
            "add_bos_token": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )


def write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2))
