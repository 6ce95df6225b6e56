"""A model directory's weights become the decoder's tensors: mapped, checked by name and shape, converted, fused.

Enters: directory, ModelConfig, Target. Leaves: Weights. The maps are closed when it returns. Never unpickles."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import ModelError
from engine.model.config import ModelConfig
from engine.model.safetensors_file import Entry, read_entries

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
Report = Callable[[str], None]


@dataclass(slots=True)
class LayerWeights:
    """Matrices are (out, in). `qkv` holds the rows of q, k and v; q and k with each head's rope pairs side by side."""

    input_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Tensor
    o_bias: Tensor | None
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(slots=True)
class Weights:
    embedding: Tensor
    """(vocab, hidden)"""
    layers: list[LayerWeights] = field(default_factory=list)
    final_norm: Tensor = field(default_factory=lambda: torch.empty(0))
    head: Tensor = field(default_factory=lambda: torch.empty(0))
    """(vocab, hidden); the embedding itself when tied."""

    @property
    def size_bytes(self) -> int:
        tensors = [self.embedding, self.final_norm]
        if self.head is not self.embedding:
            tensors.append(self.head)
        for layer in self.layers:
            tensors += [getattr(layer, name) for name in LayerWeights.__slots__ if getattr(layer, name) is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass(frozen=True, slots=True)
class Target:
    """Rounded to `storage` first, kept as `compute`: what the matmuls want, with the values the model was asked for."""

    storage: torch.dtype
    compute: torch.dtype
    device: torch.device


def load_weights(
    directory: Path,
    config: ModelConfig,
    target: Target,
    report: Report,
    take: Callable[[int, LayerWeights], None] | None = None,
) -> Weights:
    """`take` is given each layer instead of keeping it. Raises ModelError naming the file and the tensor that is
    missing, misshapen or of a type that is no weight."""
    entries = read_entries(directory)
    shards = {entry.file for entry in entries.values()}
    total = sum(entry.size_bytes for entry in entries.values())
    report(f"{total / 1e9:.2f} GB in {len(shards)} shard{'s' if len(shards) > 1 else ''}")
    checkpoint = Checkpoint(directory, entries, target)
    weights = Weights(checkpoint.get("model.embed_tokens.weight", config.vocab_size, config.hidden_size))
    for layer in range(config.num_layers):
        tensors = _layer(checkpoint, config, f"model.layers.{layer}.")
        if take is None:
            weights.layers.append(tensors)
        else:
            take(layer, tensors)
        report(f"layer {layer + 1} of {config.num_layers}")
    weights.final_norm = checkpoint.get("model.norm.weight", config.hidden_size)
    weights.head = _head(checkpoint, config, weights.embedding)
    return weights


class Checkpoint:
    """Tensors by name out of mapped files. `directory` is for messages."""

    def __init__(self, directory: Path, entries: dict[str, Entry], target: Target) -> None:
        self.directory = directory
        self.entries = entries
        self.target = target
        self._maps: dict[Path, mmap.mmap] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def raw(self, name: str, *shape: int) -> Tensor:
        """A view into the file, checked, not yet converted."""
        entry = self.entries.get(name)
        if entry is None:
            raise ModelError(f"{self.directory}: weight {name!r} is missing; download the model again")
        if entry.shape != shape:
            raise ModelError(
                f"{entry.file}: {name!r} has shape {list(entry.shape)}, config.json asks for {list(shape)}; "
                "the files do not belong together"
            )
        if entry.dtype not in _DTYPES:
            raise ModelError(f"{entry.file}: {name!r} is {entry.dtype}; quantised weights are not supported")
        count = entry.size_bytes // _DTYPES[entry.dtype].itemsize
        view = torch.frombuffer(self._map(entry.file), dtype=_DTYPES[entry.dtype], count=count, offset=entry.start)
        return view.view(shape)

    def get(self, name: str, *shape: int) -> Tensor:
        """A tensor of its own, converted and on the device."""
        return self.convert(self.raw(name, *shape))

    def optional(self, wanted: bool, name: str, *shape: int) -> Tensor | None:
        return self.get(name, *shape) if wanted else None

    def convert(self, raw: Tensor) -> Tensor:
        kept = raw.to(self.target.storage).to(device=self.target.device, dtype=self.target.compute)
        return kept.clone() if kept.data_ptr() == raw.data_ptr() else kept

    def _map(self, file: Path) -> mmap.mmap:
        if file not in self._maps:
            with open(file, "rb") as handle:
                # A private copy-on-write map: torch wants writable memory, the file stays as it is.
                self._maps[file] = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_COPY)
        return self._maps[file]


def _layer(checkpoint: Checkpoint, config: ModelConfig, prefix: str) -> LayerWeights:
    hidden, inner = config.hidden_size, config.intermediate_size
    gate_up = [checkpoint.get(f"{prefix}mlp.{name}_proj.weight", inner, hidden) for name in ("gate", "up")]
    q_norm = checkpoint.optional(config.qk_norm, f"{prefix}self_attn.q_norm.weight", config.head_dim)
    k_norm = checkpoint.optional(config.qk_norm, f"{prefix}self_attn.k_norm.weight", config.head_dim)
    return LayerWeights(
        input_norm=checkpoint.get(f"{prefix}input_layernorm.weight", hidden),
        qkv=_qkv(checkpoint, config, prefix, "weight", hidden),
        qkv_bias=_qkv(checkpoint, config, prefix, "bias") if config.qkv_bias else None,
        q_norm=None if q_norm is None else pair_up(q_norm, 1),
        k_norm=None if k_norm is None else pair_up(k_norm, 1),
        o=checkpoint.get(f"{prefix}self_attn.o_proj.weight", hidden, config.q_size),
        o_bias=checkpoint.optional(config.o_bias, f"{prefix}self_attn.o_proj.bias", hidden),
        post_norm=checkpoint.get(f"{prefix}post_attention_layernorm.weight", hidden),
        gate_up=torch.cat(gate_up),
        down=checkpoint.get(f"{prefix}mlp.down_proj.weight", hidden, inner),
    )


def _qkv(checkpoint: Checkpoint, config: ModelConfig, prefix: str, suffix: str, *columns: int) -> Tensor:
    parts = []
    for name, heads in (("q", config.num_heads), ("k", config.num_kv_heads), ("v", config.num_kv_heads)):
        part = checkpoint.get(f"{prefix}self_attn.{name}_proj.{suffix}", heads * config.head_dim, *columns)
        parts.append(part if name == "v" else pair_up(part, heads))
    return torch.cat(parts)


def pair_up(rows: Tensor, heads: int) -> Tensor:
    """Per head, rows i and i + head_dim / 2 (one rope pair) move next to each other, so that rope is one complex
    product. q and k move alike, so their dot products stay."""
    return rows.view(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _head(checkpoint: Checkpoint, config: ModelConfig, embedding: Tensor) -> Tensor:
    """Tied: the embedding, whatever else the file holds. Untied: its own weight, and nothing in its place."""
    if config.tie_word_embeddings:
        return embedding
    if "lm_head.weight" not in checkpoint:
        raise ModelError(
            f"{checkpoint.directory}: weight 'lm_head.weight' is missing and config.json says tie_word_embeddings is "
            "false; download the model again"
        )
    return checkpoint.get("lm_head.weight", config.vocab_size, config.hidden_size)
