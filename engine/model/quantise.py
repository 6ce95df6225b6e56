"""Weights as small whole numbers: codes and scales of groups of inputs, and the weights that these stand for.

Enters: a float matrix (outputs, inputs). Leaves: Codes. Pure. Along its inputs a row is cut into groups, each with
numbers of its own:

int8   groups of 64, symmetric: scale = max |w| / 127, code = round(w / scale), w' = scale * code
int4   groups of 32, asymmetric: scale = (max w - min w) / 15 and low = min w, both bfloat16;
       code = round((w - low) / scale) in 0 .. 15, w' = scale * code + low

Output head and embedding, where one serves as the other, are always int8: an error there goes straight into the logits.
Norms, biases and an embedding of its own stay as they are. Coded weights that are coded again stay what they are, but
for the last bit of a scale."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as functional
from torch import Tensor

from engine.model.loader import LayerWeights, Weights

BITS = {"none": 0, "int8": 8, "int4": 4}
GROUP = {8: 64, 4: 32}
PADDED_TO = 64
"""Inputs of a coded row: with zeros to a multiple of this."""
HEAD_BITS = 8


@dataclass(frozen=True, slots=True)
class Codes:
    """codes (outputs, padded inputs) uint8 or int8   scales, lows (outputs, groups) float32; lows only of int4"""

    bits: int
    codes: Tensor
    scales: Tensor
    lows: Tensor

    def weights(self, inputs: int) -> Tensor:
        """(outputs, inputs) float32"""
        groups = self.codes.float().view(*self.scales.shape, GROUP[self.bits])
        found: Tensor = torch.addcmul(self.lows[:, :, None], groups, self.scales[:, :, None])
        return found.flatten(1)[:, :inputs]


def encode(matrix: Tensor, bits: int) -> Codes:
    """`bits` 8 or 4."""
    padded = functional.pad(matrix.float(), (0, -matrix.shape[1] % PADDED_TO))
    groups = padded.view(len(matrix), -1, GROUP[bits])
    smallest, largest = groups.aminmax(dim=-1)
    if bits == 8:
        lows = torch.zeros_like(smallest)
        scales = torch.maximum(largest, -smallest) / 127
        first, last, kind = -127, 127, torch.int8
    else:
        lows = smallest.bfloat16().float()
        scales = ((largest - lows) / 15).bfloat16().float()
        first, last, kind = 0, 15, torch.uint8
    factors = torch.where(scales > 1e-30, 1 / scales, 0)[:, :, None]
    codes = torch.addcmul(-lows[:, :, None] * factors, groups, factors).round_().clamp_(first, last).to(kind)
    return Codes(bits, codes.flatten(1), scales, lows)


def rounded(matrix: Tensor, bits: int) -> Tensor:
    """The matrix that its codes stand for, in its own type."""
    return encode(matrix, bits).weights(matrix.shape[1]).to(matrix.dtype)


def round_weights(weights: Weights, bits: int) -> Weights:
    """What computes in torch with the same weights as coded ones; `bits` 0 changes nothing."""
    if not bits:
        return weights
    head = rounded(weights.head, HEAD_BITS)
    embedding = head if weights.head is weights.embedding else weights.embedding
    return Weights(embedding, [_round_layer(layer, bits) for layer in weights.layers], weights.final_norm, head)


def _round_layer(layer: LayerWeights, bits: int) -> LayerWeights:
    matrices = {name: rounded(getattr(layer, name), bits) for name in ("qkv", "o", "gate_up", "down")}
    return replace(layer, **matrices)
