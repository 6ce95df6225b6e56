"""A freshly loaded library against torch, on a small random model: nothing is served by code that counts differently.

Enters: a Library, a storage type. Raises CheckFailed. Costs some milliseconds; leaves nothing, not even a changed
random state. The first sizes fill no vector evenly, so that every rest of every loop is run; the others fill all. One
context is longer than what one task attends to."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.errors import EngineError
from engine.messages import SamplingParams
from engine.model.attention import KVCache
from engine.model.config import ModelConfig
from engine.model.decoder import Decoder, rope_table
from engine.model.draw import draw, draw_tokens
from engine.model.inputs import Row
from engine.model.loader import LayerWeights, Weights
from engine.model.native.bindings import Library
from engine.model.native.decoder import NativeDecoder
from engine.model.quantise import round_weights

_TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 0.02}
"""Of the largest logit. Bfloat16 rounds K, V and, on some CPUs, activations, where the reference rounds nothing."""
_CODED_TOLERANCE = 5e-4
"""Weights are the same, activations rounded to 16 bits of the largest."""
_SIZES = ((76, 90, 26), (128, 192, 64))
"""Hidden, inner, of a head."""
_BLOCK_SIZE = 8
_NUM_BLOCKS = 64
_POSITIONS = 320
_CPU = torch.device("cpu")
_KINDS = ((0, 1.0), (0, 0.9), (7, 1.0), (9, 0.6), (0, 0.3), (150, 0.95))
_CUTS = [SamplingParams(top_k=k, top_p=p) for k, p in _KINDS]
_SCALED = [
    SamplingParams(temperature=0.7 + 2 * (k == 0), min_p=0.3 * (p == 1), top_k=k, top_p=p) for k, p in _KINDS[::-1]
]


class CheckFailed(EngineError):
    """The library computes something else than torch."""


def check_library(library: Library, storage: torch.dtype, threads: int = 2, bits: int = 0) -> None:
    """Three prompts of which one is continued while the others decode, all against the eager path."""
    for hidden, inner, dim in _SIZES:
        _check_sizes(library, storage, threads, _config(hidden, inner, dim), bits)


def _check_sizes(library: Library, storage: torch.dtype, threads: int, config: ModelConfig, bits: int) -> None:
    weights = _weights(config, storage)
    eager = Decoder(config, round_weights(weights, bits), _POSITIONS)
    native = NativeDecoder(library, config, rope_table(config, _POSITIONS), storage, threads, _BLOCK_SIZE, bits=bits)
    try:
        native.take(weights, threads)
        caches = [KVCache(config, _NUM_BLOCKS, _BLOCK_SIZE, dtype, _CPU) for dtype in (torch.float32, storage)]
        for cache in caches:
            cache.keys[:, :-1] = cache.values[:, :-1] = torch.nan
        for number, rows in enumerate(_steps(config)):
            expected = eager.logits(eager.run(rows, caches[0]))
            hidden = native.run(rows, caches[1])
            found = native.logits(hidden)
            _compare(expected, found, max(_TOLERANCE[storage], _CODED_TOLERANCE if bits else 0), number)
            if native.greedy(hidden)[0] != found.argmax(-1).tolist():
                raise CheckFailed(f"step {number}: the greedy tokens are not those of the logits")
        _check_draws(native, config.vocab_size)
    finally:
        native.close()


def _check_draws(native: NativeDecoder, vocab: int) -> None:
    """Of scattered and of equal weights, by every kind of cut, and of logits."""
    uniform = torch.linspace(0, 1 - 2**-40, len(_CUTS), dtype=torch.float64)[:, None]
    places = torch.arange(len(_CUTS) * vocab).view(len(_CUTS), vocab)
    for weights in ((places * 37 % vocab / -16.0).exp(), places % 3 / 2.0):
        if not torch.equal(native.draw(weights.clone(), uniform, _CUTS), draw(weights, uniform, _CUTS)):
            raise CheckFailed("the drawn tokens are not those of torch")
    logits, rows = places * 37 % vocab / -16.0, list(range(len(_SCALED)))[::-1]
    if not torch.equal(
        native.draw_tokens(logits.clone(), rows, uniform, _SCALED), draw_tokens(logits, rows, uniform, _SCALED)
    ):
        raise CheckFailed("the tokens drawn by logits are not those of torch")


def _compare(expected: Tensor, found: Tensor, tolerance: float, number: int) -> None:
    scale = float(expected.abs().max())
    distance = float((expected - found).abs().max())
    # Written so that a NaN fails.
    if not distance <= tolerance * scale:
        raise CheckFailed(f"step {number}: logits of up to {scale:.2f} differ by {distance:.2g}")


def _config(hidden: int, inner: int, dim: int) -> ModelConfig:
    return ModelConfig(
        architecture="LlamaForCausalLM",
        family="llama",
        vocab_size=203,
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=2,
        num_heads=6,
        num_kv_heads=2,
        head_dim=dim,
        rms_norm_eps=1e-5,
        max_position_embeddings=_POSITIONS,
        rope_theta=10000.0,
        qkv_bias=True,
        o_bias=True,
        qk_norm=True,
    )


def _weights(config: ModelConfig, storage: torch.dtype) -> Weights:
    random = torch.Generator().manual_seed(7)

    def some(*shape: int, mean: float = 0.0, spread: float = 0.1) -> Tensor:
        return (torch.randn(shape, generator=random) * spread + mean).to(storage).float()

    hidden, inner, heads = config.hidden_size, config.intermediate_size, config.num_heads + 2 * config.num_kv_heads
    layers = [
        LayerWeights(
            input_norm=some(hidden, mean=1),
            qkv=some(heads * config.head_dim, hidden),
            qkv_bias=some(heads * config.head_dim),
            q_norm=some(config.head_dim, mean=1),
            k_norm=some(config.head_dim, mean=1),
            o=some(hidden, config.q_size),
            o_bias=some(hidden),
            post_norm=some(hidden, mean=1),
            gate_up=some(2 * inner, hidden),
            down=some(hidden, inner),
        )
        for _ in range(config.num_layers)
    ]
    ends = some(config.vocab_size, hidden, spread=1), some(config.vocab_size, hidden, spread=1)
    return Weights(ends[0], layers, some(hidden, mean=1), ends[1])


def _steps(config: ModelConfig) -> list[list[Row]]:
    random = np.random.default_rng(7)
    blocks = random.permutation(_NUM_BLOCKS)
    tables = [blocks[:10], blocks[10:48], blocks[48:62]]
    lengths = (3, 271, 66)
    tokens = [random.integers(0, config.vocab_size, 280).tolist() for _ in lengths]

    def row(number: int, start: int, end: int, kept: int | None = None) -> Row:
        return Row(tokens[number][start:end], start, end - start, tables[number], kept)

    first = [row(0, 0, 3), row(1, 0, 271), row(2, 0, 17, kept=0)]
    second = [row(0, 3, 4), row(1, 271, 272), row(2, 17, 66, kept=1)]
    return [
        first,
        second,
        [row(number, lengths[number] + (number < 2), lengths[number] + 1 + (number < 2)) for number in range(3)],
    ]
