"""A step of many tokens is run in pieces, with the bits of one that is not, and with scratch memory for a piece."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from engine.model.inputs import Row
from engine.model.native import decoder
from engine.model.native.bindings import Batch, Library
from engine.model.native.decoder import pack_rows
from tests.support.native import make_both, random_weights, small_config


@pytest.fixture(autouse=True)
def no_gradients() -> None:
    torch.set_grad_enabled(False)


class Watched:
    """A library of which each step tells how many tokens and rows it was given."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.steps: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._library, name)

    def step(self, model: int, batch: Batch) -> int:
        self.steps.append((batch.tokens, batch.rows))
        status: int = self._library.step(model, batch)
        return status


@pytest.mark.parametrize("most", [1, 7, 16, 45, 46])
def test_pieces_have_the_bits_of_the_whole(library: Library, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Borders within rows, between them, and in front of rows of one token."""
    config = small_config(num_layers=2)
    both = make_both(library, config, random_weights(config, 3), length=60)
    both.native.run([both.row(number, 0, 9) for number in range(4)], both.caches[1])
    rows = [both.row(0, 9, 10), both.row(1, 9, 30), both.row(2, 9, 10), both.row(3, 9, 32)]
    whole = both.native.run(rows, both.caches[1])
    cache = both.caches[1].keys.clone()
    monkeypatch.setattr(decoder, "PIECE_TOKENS", most)
    watched = Watched(library)
    monkeypatch.setattr(both.native, "_library", watched)
    assert torch.equal(both.native.run(rows, both.caches[1]), whole)
    assert torch.equal(both.caches[1].keys.nan_to_num(), cache.nan_to_num())
    tokens = [tokens for tokens, _ in watched.steps]
    assert sum(tokens) == 46 and max(tokens) <= most and len(tokens) == -(-46 // most)
    assert max(tokens) - min(tokens) <= 1, "no piece is a rest of a few tokens"


def test_a_cut_is_rows_that_begin_later_and_end_earlier() -> None:
    rows = [Row([5, 6, 7], 3, 3, np.array([9])), Row([8], 0, 1, np.array([4, 2])), Row([1, 2], 7, 2, np.array([6, 0]))]
    parts = pack_rows(rows)
    first, second = (parts.cut(begin, end) for begin, end in pairwise([0, 2, 6]))
    assert (first.ids.tolist(), first.positions.tolist(), first.rows.tolist()) == ([5, 6], [3, 4], [[0, 3, 2, 0]])
    assert second.ids.tolist() == [7, 8, 1, 2]
    assert second.positions.tolist() == [5, 0, 7, 8]
    assert second.rows.tolist() == [[0, 5, 1, 0], [1, 0, 1, 1], [2, 7, 2, 3]]
    assert second.blocks.tolist() == parts.blocks.tolist() and second.lengths.tolist() == [1, 2, 2]
    assert parts.rows.tolist() == [[0, 3, 3, 0], [3, 0, 1, 1], [4, 7, 2, 3]], "the whole stays as it was"
