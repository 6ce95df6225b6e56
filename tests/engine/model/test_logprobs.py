"""Log-probabilities in their wire arrays, against log_softmax of each row alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.messages import NdArray
from engine.model.logprobs import CHUNK_ROWS, Collected, add_prompt_rows, token_logprobs

_NUMPY = {"int32": "<i4", "float32": "<f4"}


def values(array: NdArray) -> np.ndarray:
    return np.frombuffer(array.data, _NUMPY.get(array.dtype, array.dtype)).reshape(array.shape)


def logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, 50, generator=torch.Generator().manual_seed(rows))


def test_each_row_has_as_many_as_it_asked_for() -> None:
    raw, chosen = logits(3), [4, 9, 49]
    for row, (message, best) in enumerate(zip(token_logprobs(raw, chosen, [0, 5, -1]), [0, 5, 50], strict=True)):
        scores = raw[row].log_softmax(-1)
        assert message.token_ids.shape == [1, best + 1]
        assert values(message.token_ids)[0].tolist() == [chosen[row], *scores.topk(best).indices.tolist()]
        np.testing.assert_allclose(values(message.logprobs)[0, 0], scores[chosen[row]], rtol=1e-5)
        assert values(message.ranks).tolist() == [int((scores > scores[chosen[row]]).sum()) + 1]


@pytest.mark.parametrize("pieces", [(1,), (200,), (1, 70, 129)])
def test_a_prompt_in_pieces_is_the_prompt_in_one(pieces: tuple[int, ...]) -> None:
    raw = logits(200)[: sum(pieces)]
    following = [(index * 7) % 50 for index in range(sum(pieces))]
    seen: list[int] = []

    def head(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(len(hidden))
        return hidden

    collected, first = Collected(), 0
    for count in pieces:
        add_prompt_rows(collected, raw[first : first + count], following[first : first + count], 3, head)
        first += count
    assert collected.rows == len(raw) == sum(seen)
    assert max(seen) <= CHUNK_ROWS
    message = collected.message(as_tensors=True)
    assert values(message.token_ids)[:, 0].tolist() == following
    scores = raw.log_softmax(-1)
    np.testing.assert_allclose(values(message.logprobs)[:, 1:], scores.topk(3).values.numpy(), rtol=1e-5)
    assert (values(message.token_ids)[:, 1:] == scores.topk(3).indices.numpy()).all()
