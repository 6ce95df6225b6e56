"""Compiled libraries and small random models for the tests of the compiled step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.model.attention import KVCache
from engine.model.config import ModelConfig
from engine.model.decoder import Decoder, rope_table
from engine.model.inputs import Row
from engine.model.loader import LayerWeights, Weights
from engine.model.native.bindings import Library
from engine.model.native.build import Build, BuildError, Level, find_compiler, find_library, levels
from engine.model.native.decoder import NativeDecoder
from engine.model.quantise import round_weights

CPU = torch.device("cpu")
POSITIONS = 640


def wide_pairs(*more: str) -> Level:
    """The code of CPUs with wide vectors and products of bfloat16 pairs, lowered to what this one has."""
    return Level((*levels()[0].flags, "-DW=16", "-DEMULATE_PAIRS", *more), frozenset())


def built(level: Level) -> Library:
    file = find_library(level)
    if file is None:
        try:
            find_compiler()
        except BuildError as error:
            pytest.skip(str(error))
        file = Build(level).run()
    return Library(file)


def small_config(**changes: int | bool | float) -> ModelConfig:
    config: dict[str, int | bool | float] = {
        "vocab_size": 131,
        "hidden_size": 48,
        "intermediate_size": 70,
        "num_layers": 1,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": POSITIONS,
        "rope_theta": 10000.0,
        **changes,
    }
    return ModelConfig(architecture="LlamaForCausalLM", family="llama", **config)  # type: ignore[arg-type]


def random_weights(config: ModelConfig, seed: int, dtype: torch.dtype = torch.float32) -> Weights:
    """Float32 numbers that `dtype` holds exactly; products keep the size of what goes in."""
    random = torch.Generator().manual_seed(seed)

    def draw(*shape: int, mean: float = 0.0) -> Tensor:
        spread = 1 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1
        return (torch.randn(shape, generator=random) * spread + mean).to(dtype).float()

    hidden, heads = config.hidden_size, config.num_heads + 2 * config.num_kv_heads

    def layer() -> LayerWeights:
        return LayerWeights(
            input_norm=draw(hidden, mean=1),
            qkv=draw(heads * config.head_dim, hidden) * 2,
            qkv_bias=draw(heads * config.head_dim) if config.qkv_bias else None,
            q_norm=draw(config.head_dim, mean=1) if config.qk_norm else None,
            k_norm=draw(config.head_dim, mean=1) if config.qk_norm else None,
            o=draw(hidden, config.q_size),
            o_bias=draw(hidden) if config.o_bias else None,
            post_norm=draw(hidden, mean=1),
            gate_up=draw(2 * config.intermediate_size, hidden),
            down=draw(hidden, config.intermediate_size),
        )

    embedding = draw(config.vocab_size, hidden) * 4
    layers = [layer() for _ in range(config.num_layers)]
    head = embedding if config.tie_word_embeddings else draw(config.vocab_size, hidden)
    return Weights(embedding, layers, draw(hidden, mean=1), head)


@dataclass
class Both:
    """The same weights in torch and compiled, each with a cache of NaN; blocks are handed out in no order."""

    config: ModelConfig
    weights: Weights
    eager: Decoder
    native: NativeDecoder
    caches: tuple[KVCache, KVCache]
    tables: list[np.ndarray]
    tokens: list[list[int]]

    def row(self, number: int, start: int, end: int) -> Row:
        return Row(self.tokens[number][start:end], start, end - start, self.tables[number])

    def run(self, rows: list[Row]) -> tuple[Tensor, Tensor]:
        return self.eager.run(rows, self.caches[0]), self.native.run(rows, self.caches[1])


def make_both(
    library: Library,
    config: ModelConfig,
    weights: Weights,
    storage: torch.dtype = torch.float32,
    block_size: int = 16,
    threads: int = 2,
    requests: int = 4,
    length: int = 200,
    seed: int = 0,
    bits: int = 0,
) -> Both:
    random = np.random.default_rng(seed)
    native = NativeDecoder(library, config, rope_table(config, POSITIONS), storage, threads, block_size, bits=bits)
    native.take(weights, threads)
    each = -(-length // block_size)
    caches = [KVCache(config, each * requests + 3, block_size, dtype, CPU) for dtype in (torch.float32, storage)]
    for cache in caches:
        cache.keys[:, :-1] = cache.values[:, :-1] = torch.nan
    order = random.permutation(caches[0].num_blocks)
    tables = [order[number * each : (number + 1) * each] for number in range(requests)]
    tokens = [random.integers(0, config.vocab_size, length).tolist() for _ in range(requests)]
    eager = Decoder(config, round_weights(weights, bits), POSITIONS)
    return Both(config, weights, eager, native, (caches[0], caches[1]), tables, tokens)


def without(weights: Weights, part: str) -> Weights:
    """The layers with one matrix of zeros: what it projects adds nothing."""
    layers = [replace(layer, **{part: torch.zeros_like(getattr(layer, part))}) for layer in weights.layers]
    return replace(weights, layers=layers)
