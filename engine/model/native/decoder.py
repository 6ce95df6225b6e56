"""The decoder in compiled code: packed weights and threads of one model, one call for the hidden states of a step.

Enters: Weights (which may be dropped afterwards), then rows and a KV cache of the same layout as the eager path's.
Leaves: hidden states, logits, greedy and drawn tokens. Owns memory and threads outside Python until close(). Main
thread only; packing may be done in another thread before anybody else knows of the object."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from engine.messages import SamplingParams
from engine.model.attention import KVCache
from engine.model.config import ModelConfig
from engine.model.draw import cuts, unit
from engine.model.inputs import Row
from engine.model.loader import LayerWeights, Weights
from engine.model.native.bindings import TOO_MANY_TASKS, Batch, Library, Matrix, Sizes, Vector
from engine.model.quantise import HEAD_BITS, Codes, encode

STORAGE = (torch.float32, torch.bfloat16)
PIECE_TOKENS = 512
"""A step of more tokens is run in pieces, each through all layers: scratch memory stays small, and what one layer hands
the next stays in the caches. Weights are read once more for each, which so many tokens do not notice."""


class NativeDecoder:
    """`storage` float32 or bfloat16: of the packed weights; products are summed in float32."""

    def __init__(
        self,
        library: Library,
        config: ModelConfig,
        rope: Tensor,
        storage: torch.dtype,
        threads: int,
        block_size: int,
        pairs: bool = True,
        bits: int = 0,
    ) -> None:
        """`pairs`: with bfloat16 weights, round activations too where the CPU multiplies pairs of bfloat16.
        `bits`: 8 or 4 keeps weights as codes (quantise.py) and rounds activations to 16 bits of the largest."""
        if not can_run(config, storage):
            raise ValueError(f"the compiled step does not run this model in {storage}")
        self.config = config
        self.storage = storage
        self.bits = bits
        self.rope = rope
        self.device = rope.device
        self.description: str = library.description().decode()
        self._library = library
        self._block_size = block_size
        angles = torch.view_as_real(rope).contiguous()
        self._kept: list[Tensor] = [angles]
        is_bf16 = storage == torch.bfloat16
        sizes = Sizes(
            vocab=config.vocab_size,
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            layers=config.num_layers,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            dim=config.head_dim,
            block_size=block_size,
            threads=threads,
            weights_are_bfloat16=is_bf16,
            cache_is_bfloat16=is_bf16,
            pairs=pairs,
            bits=bits,
            epsilon=config.rms_norm_eps,
        )
        self._pid = os.getpid()
        self._model: int | None = library.new(sizes)
        if not self._model:
            raise MemoryError("no memory for the compiled step")
        self.threads: int = library.threads(self._model)
        self.weight_bytes = 0
        self._set_vector(0, Vector.ROPE, angles)

    def close(self) -> None:
        model, self._model = self._model, None
        if model and os.getpid() == self._pid:  # a fork has its memory without its threads, which free() would wait for
            self._library.free(model)

    def __del__(self) -> None:
        self.close()

    # ---- weights

    def take(self, weights: Weights, threads: int = 1) -> None:
        """Packs all of them. With more than one thread on those of this object. Raises MemoryError."""
        for number, layer in enumerate(weights.layers):
            self.take_layer(number, layer, threads)
        self.take_ends(weights.embedding, weights.head, weights.final_norm, threads)

    def take_layer(self, number: int, layer: LayerWeights, threads: int = 1) -> None:
        gate, up = layer.gate_up.chunk(2)
        matrices = {Matrix.QKV: layer.qkv, Matrix.O: layer.o, Matrix.GATE: gate, Matrix.UP: up, Matrix.DOWN: layer.down}
        for name, matrix in matrices.items():
            self._set_matrix(number, name, matrix, threads)
        vectors = {
            Vector.INPUT_NORM: layer.input_norm,
            Vector.POST_NORM: layer.post_norm,
            Vector.Q_NORM: layer.q_norm,
            Vector.K_NORM: layer.k_norm,
            Vector.QKV_BIAS: layer.qkv_bias,
            Vector.O_BIAS: layer.o_bias,
        }
        for vector, values in vectors.items():
            if values is not None:
                self._set_vector(number, vector, self._keep(values.float()))

    def take_ends(self, embedding: Tensor, head: Tensor, final_norm: Tensor, threads: int = 1) -> None:
        """A tied embedding is read out of the packed head."""
        self._set_matrix(0, Matrix.HEAD, head, threads)
        self._set_vector(0, Vector.FINAL_NORM, self._keep(final_norm.float()))
        if head is not embedding:
            self._set_vector(0, Vector.EMBEDDING, self._keep(embedding.to(self.storage)))

    def _set_matrix(self, layer: int, name: Matrix, matrix: Tensor, threads: int) -> None:
        if self.bits:
            self._set_codes(layer, name, encode(matrix, HEAD_BITS if name is Matrix.HEAD else self.bits), threads)
            return
        source = matrix.contiguous()
        is_bf16 = source.dtype == torch.bfloat16
        if not is_bf16 or self.storage != torch.bfloat16:
            source, is_bf16 = source.float(), False
        if self._library.set_matrix(self._model, layer, name, source.data_ptr(), is_bf16, threads):
            raise MemoryError("no memory for the packed weights")
        self.weight_bytes += source.numel() * self.storage.itemsize

    def _set_codes(self, layer: int, name: Matrix, coded: Codes, threads: int) -> None:
        parts = [coded.codes.contiguous(), coded.scales.contiguous(), coded.lows.contiguous()]
        if self._library.set_codes(self._model, layer, name, *(part.data_ptr() for part in parts), threads):
            raise MemoryError("no memory for the packed weights")
        self.weight_bytes += coded.codes.numel() * coded.bits // 8 + coded.scales.numel() * 4

    def _set_vector(self, layer: int, name: Vector, values: Tensor) -> None:
        self._library.set_vector(self._model, layer, name, values.data_ptr())

    def _keep(self, values: Tensor) -> Tensor:
        kept = values.contiguous().clone()
        self._kept.append(kept)
        self.weight_bytes += kept.numel() * kept.element_size()
        return kept

    # ---- steps

    def run(self, rows: Sequence[Row], cache: KVCache) -> Tensor:
        """(K, hidden) float32 after the final norm, of the tokens that the packed rows keep; K and V of all are
        written. Raises IndexError for a token, position or block that there is not, OverflowError when the rows are
        too many."""
        parts = pack_rows(rows)
        self._check(parts, cache)
        hidden = torch.empty(parts.num_kept, self.config.hidden_size)
        number = -(-len(parts.ids) // PIECE_TOKENS)
        borders = [len(parts.ids) * piece // number for piece in range(number + 1)]
        done = 0
        for begin, end in pairwise(borders):
            piece = parts if number == 1 else parts.cut(begin, end)
            self._run_piece(piece, cache, hidden[done : done + piece.num_kept])
            done += piece.num_kept
        return hidden

    def _run_piece(self, parts: PackedRows, cache: KVCache, hidden: Tensor) -> None:
        # Everything that the call reads by address lives in `parts` until it returns.
        batch = Batch(
            tokens=len(parts.ids),
            rows=len(parts.rows),
            kept_tokens=parts.num_kept,
            kept_rows=len(parts.kept),
            ids=parts.ids.ctypes.data,
            blocks=parts.blocks.ctypes.data,
            positions=parts.positions.ctypes.data,
            row=parts.rows.ctypes.data,
            kept=parts.kept.ctypes.data,
            keys=cache.keys.data_ptr(),
            values=cache.values.data_ptr(),
            layer_stride=cache.keys.stride(0),
            upcoming=cache.upcoming.start,
            num_upcoming=len(cache.upcoming),
            hidden=hidden.data_ptr(),
        )
        cache.upcoming = range(0)
        self._checked(self._library.step(self._model, batch))

    def _check(self, parts: PackedRows, cache: KVCache) -> None:
        """The compiled code reads and writes where these say."""
        ids, blocks, ends = parts.ids, parts.blocks, parts.rows[:, 1] + parts.rows[:, 2]
        if ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise IndexError("a token id is outside the vocabulary")
        if blocks.min() < 0 or blocks.max() > cache.num_blocks:
            raise IndexError("a block is outside the KV cache")
        if ends.max() > len(self.rope) or (ends > parts.lengths * cache.shape.block_size).any():
            raise IndexError("a position is past the rope table or the row's blocks")
        if cache.keys.dtype != self.storage or cache.shape.block_size != self._block_size:
            raise ValueError(f"the KV cache is not of the kind that was packed for: {cache.keys.dtype}")

    def logits(self, hidden: Tensor) -> Tensor:
        """(B, hidden) -> (B, vocab) float32."""
        hidden = hidden.contiguous()
        logits = torch.empty(len(hidden), self.config.vocab_size)
        self._checked(self._library.logits(self._model, hidden.data_ptr(), len(hidden), logits.data_ptr()))
        return logits

    def greedy(self, hidden: Tensor) -> tuple[list[int], list[float]]:
        """(B, hidden) -> the best token of each row and its logit, NaN where any logit is; no logits are kept."""
        hidden = hidden.contiguous()
        ids, values = np.empty(len(hidden), np.int64), np.empty(len(hidden), np.float32)
        arguments = (hidden.data_ptr(), len(hidden), ids.ctypes.data, values.ctypes.data)
        self._checked(self._library.greedy(self._model, *arguments))
        return ids.tolist(), values.tolist()

    def draw_tokens(
        self, logits: Tensor, places: list[int], uniform: Tensor, params: Sequence[SamplingParams]
    ) -> Tensor:
        """The ids of draw.draw_tokens; rows `places` of the logits (B, vocab) become weights in whole numbers, but for
        those where there is nothing to draw from."""
        if not logits.is_contiguous():
            raise ValueError("logits whose rows are not side by side")
        temperatures = np.array([p.temperature for p in params], np.float32)
        least = np.array([p.min_p for p in params], np.float32)
        return self._draw(logits, places, (temperatures.ctypes.data, least.ctypes.data), uniform, params)

    def draw(self, weights: Tensor, uniform: Tensor, params: Sequence[SamplingParams]) -> Tensor:
        """The ids of draw.draw without its sorting; weights (B, vocab) are changed."""
        return self._draw(weights.contiguous(), range(len(weights)), (None, None), uniform, params)

    def _draw(
        self,
        numbers: Tensor,
        places: Sequence[int],
        scaling: tuple[int | None, int | None],
        uniform: Tensor,
        params: Sequence[SamplingParams],
    ) -> Tensor:
        limits, shares = cuts(params, self.config.vocab_size)
        many, share, rows = np.array(limits, np.int64), np.array(shares, np.float64), np.array(places, np.int64)
        uniform = uniform.contiguous()
        ids = torch.empty(len(rows), dtype=torch.int64)
        given = (numbers.data_ptr(), rows.ctypes.data, len(rows), unit(self.config.vocab_size), *scaling)
        self._library.draw(self._model, *given, many.ctypes.data, share.ctypes.data, uniform.data_ptr(), ids.data_ptr())
        return ids

    # ---- for benchmarks

    def product(self, layer: int, name: Matrix, rows: Tensor, out: Tensor) -> Tensor:
        """rows (B, inputs) float32 times one matrix alone; gate and up are one, by Matrix.GATE. Returns out."""
        arguments = (layer, name, rows.data_ptr(), len(rows), out.data_ptr())
        self._checked(self._library.product(self._model, *arguments))
        return out

    def read(self, values: Tensor) -> None:
        """Reads all of it once, on all threads; a multiple of 256 KiB."""
        self._library.read(self._model, values.data_ptr(), values.numel() * values.element_size())

    def multiply_adds(self, tasks: int) -> float:
        """Keeps all threads multiplying in registers; returns how many multiply-adds of single numbers that were."""
        return float(self._library.multiply_adds(self._model, tasks))

    def _checked(self, status: int) -> None:
        if status == TOO_MANY_TASKS:
            raise OverflowError("this step has more rows than the compiled step can share out; lower max_num_seqs")
        if status:
            raise MemoryError("no memory for the scratch space of this step")


class PackedRows:
    """ids, positions (T,)   rows (R, 4) first, start, count, where its blocks begin   blocks: all tables, one after
    the other   kept (S, 4): of the rows that keep any tokens those, as rows. All int64."""

    __slots__ = ("blocks", "ids", "kept", "lengths", "num_kept", "positions", "rows")

    def __init__(
        self,
        ids: np.ndarray,
        positions: np.ndarray,
        rows: np.ndarray,
        kept: np.ndarray,
        blocks: np.ndarray,
        lengths: np.ndarray,
    ) -> None:
        self.ids = ids
        self.positions = positions
        self.rows = rows
        self.kept = kept
        self.num_kept = int(kept[:, 2].sum())
        self.blocks = blocks
        self.lengths = lengths
        """(R,) blocks of each row."""

    def cut(self, begin: int, end: int) -> PackedRows:
        """Tokens [begin, end) alone: a row that goes on before or behind is one that began, or will go on, later."""
        of, rows = _cut_rows(self.rows, begin, end)
        _, kept = _cut_rows(self.kept, begin, end)
        return PackedRows(self.ids[begin:end], self.positions[begin:end], rows, kept, self.blocks, self.lengths[of])


def _cut_rows(rows: np.ndarray, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Which rows have tokens in [begin, end), and these parts of them."""
    firsts, counts = rows[:, 0], rows[:, 2]
    of = np.flatnonzero((firsts < end) & (firsts + counts > begin))
    cut = rows[of]
    skipped = np.maximum(begin - cut[:, 0], 0)
    ends = np.minimum(cut[:, 0] + cut[:, 2], end)
    cut[:, 0] += skipped
    cut[:, 1] += skipped
    cut[:, 2] = ends - cut[:, 0]
    cut[:, 0] -= begin
    return of, cut


def pack_rows(rows: Sequence[Row]) -> PackedRows:
    table = np.empty((len(rows), 4), np.int64)
    starts, counts = table[:, 1], table[:, 2]
    starts[:] = [row.start for row in rows]
    counts[:] = [row.count for row in rows]
    np.cumsum(counts, out=table[:, 0])
    table[:, 0] -= counts
    lengths = np.array([len(row.blocks) for row in rows], np.int64)
    np.cumsum(lengths, out=table[:, 3])
    table[:, 3] -= lengths
    ids = np.array([token for row in rows for token in row.tokens], np.int64)
    positions = starts if len(ids) == len(rows) else np.repeat(starts - table[:, 0], counts) + np.arange(len(ids))
    blocks = np.concatenate([row.blocks for row in rows], dtype=np.int64)
    return PackedRows(ids, np.ascontiguousarray(positions), table, _kept_rows(rows, table), blocks, lengths)


def _kept_rows(rows: Sequence[Row], table: np.ndarray) -> np.ndarray:
    """The table of the rows' last tokens that are kept."""
    numbers = np.array([row.num_kept for row in rows], np.int64)
    skipped = table[:, 2] - numbers
    if not skipped.any():
        return table
    kept = table.copy()
    kept[:, 0] += skipped
    kept[:, 1] += skipped
    kept[:, 2] = numbers
    return kept[numbers > 0]


def can_run(config: ModelConfig, storage: torch.dtype) -> bool:
    """Sizes are read in pairs; float16 is left to torch."""
    sizes = (config.hidden_size, config.intermediate_size, config.q_size, config.head_dim)
    return storage in STORAGE and all(size % 2 == 0 for size in sizes)
