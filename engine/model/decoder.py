"""The Llama family's decoder: packed tokens in, hidden states out, logits for the rows that ask.

Owns weights and rope table; the cache is handed in. Main thread only, blocks. An exception leaves the cache with a
part of the step's own rows written and nothing else, so the same rows can be run again."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as functional
from torch import Tensor

from engine.model.attention import KVCache, attend
from engine.model.config import ModelConfig
from engine.model.draw import draw_tokens
from engine.model.inputs import InputBuilder, Row, StepInputs
from engine.model.loader import LayerWeights, Weights


class Decoder:
    def __init__(self, config: ModelConfig, weights: Weights, max_positions: int) -> None:
        self.config = config
        self.weights = weights
        self.rope = rope_table(config, max_positions).to(weights.embedding.device)
        self.device = weights.embedding.device
        self.weight_bytes = weights.size_bytes
        self._norm_shape = (config.hidden_size,)
        self._inputs: InputBuilder | None = None

    def run(self, rows: Sequence[Row], cache: KVCache) -> Tensor:
        """(K, hidden) after the final norm, of the tokens that the packed rows keep; K and V of all are written."""
        if self._inputs is None or self._inputs.shape != cache.shape:
            self._inputs = InputBuilder(cache.shape, self.device, self.weights.embedding.dtype)
        return self.forward(self._inputs.build(rows), cache)

    def forward(self, inputs: StepInputs, cache: KVCache) -> Tensor:
        """(K, hidden) after the final norm."""
        x = functional.embedding(inputs.ids, self.weights.embedding)
        rope = self.rope.index_select(0, inputs.positions).unsqueeze(1)
        for layer, layer_cache in zip(self.weights.layers, cache.layers, strict=True):
            x = x + self._attention(self._norm(x, layer.input_norm), layer, rope, layer_cache, inputs)
            if layer is self.weights.layers[-1] and inputs.kept is not None:
                x = x[inputs.kept]
            x = x + self._mlp(self._norm(x, layer.post_norm), layer)
        return self._norm(x, self.weights.final_norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """(B, hidden) -> (B, vocab) float32."""
        return functional.linear(hidden, self.weights.head).float()

    def greedy(self, hidden: Tensor) -> tuple[list[int], list[float]]:
        """(B, hidden) -> the best token of each row and its logit, NaN where any logit is."""
        # max, not argmax: the same and twice as fast.
        values, ids = self.logits(hidden).max(-1)
        return ids.tolist(), values.tolist()

    draw_tokens = staticmethod(draw_tokens)

    def close(self) -> None:
        """Nothing is held outside Python."""

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(x, self._norm_shape, weight, self.config.rms_norm_eps)

    def _attention(
        self, x: Tensor, layer: LayerWeights, rope: Tensor, cache: tuple[Tensor, Tensor], inputs: StepInputs
    ) -> Tensor:
        config = self.config
        qkv = functional.linear(x, layer.qkv, layer.qkv_bias).view(len(x), -1, config.head_dim)
        qk, v = torch.split(qkv, [config.num_heads + config.num_kv_heads, config.num_kv_heads], 1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = torch.split(qk, [config.num_heads, config.num_kv_heads], 1)
            size = (config.head_dim,)
            q = functional.rms_norm(q, size, layer.q_norm, config.rms_norm_eps)
            k = functional.rms_norm(k, size, layer.k_norm, config.rms_norm_eps)
            qk = torch.cat((q, k), 1)
        q, k = torch.split(rotate(qk, rope), [config.num_heads, config.num_kv_heads], 1)
        return functional.linear(attend(q, k, v, cache, inputs), layer.o, layer.o_bias)

    def _mlp(self, x: Tensor, layer: LayerWeights) -> Tensor:
        gate, up = functional.linear(x, layer.gate_up).chunk(2, -1)
        return functional.linear(functional.silu(gate).mul_(up), layer.down)


def rotate(heads: Tensor, rope: Tensor) -> Tensor:
    """(T, H, D) with rope pairs side by side, times (T, 1, D / 2) complex64."""
    pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rope).flatten(-2).to(heads.dtype)


def rope_table(config: ModelConfig, max_positions: int) -> Tensor:
    """(max_positions, head_dim / 2) complex64: cos + i sin of position times frequency."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    if config.rope_scaling is not None:
        scaling = config.rope_scaling
        turns = scaling.original_max_position_embeddings / (2 * torch.pi / frequencies)
        spread = scaling.high_freq_factor - scaling.low_freq_factor
        smooth = ((turns - scaling.low_freq_factor) / spread).clamp(0, 1)
        frequencies = frequencies * ((1 - smooth) / scaling.factor + smooth)
    angles = torch.outer(torch.arange(max_positions).float(), frequencies)
    return torch.polar(torch.ones_like(angles), angles)
