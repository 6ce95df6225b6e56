"""Each piece of the compiled step against torch, over shapes that fill no vector evenly, and against itself."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from engine.model.decoder import rope_table
from engine.model.inputs import Row
from engine.model.native.bindings import Library, Matrix
from engine.model.native.build import Level, levels
from engine.model.native.decoder import NativeDecoder, can_run, pack_rows
from tests.support.native import Both, built, make_both, random_weights, small_config, without
from tests.support.wait import wait_until

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def no_gradients() -> None:
    torch.set_grad_enabled(False)


def close(found: Tensor, expected: Tensor, share: float = 1e-5) -> None:
    assert bool(found.isfinite().all())
    assert float((found - expected).abs().max()) <= share * float(expected.abs().max())


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 7, 13, 50])
@pytest.mark.parametrize(
    ("vocab", "hidden", "tied"), [(7, 6, True), (131, 48, True), (96, 66, False), (512, 34, False)]
)
def test_embedding_norm_and_head(library: Library, count: int, vocab: int, hidden: int, tied: bool) -> None:
    config = small_config(vocab_size=vocab, hidden_size=hidden, tie_word_embeddings=tied)
    nothing = without(without(random_weights(config, 1), "o"), "down")
    both = make_both(library, config, nothing, length=50)
    weights = both.weights
    ids = torch.tensor(both.tokens[0][:count])
    hidden_states = both.native.run([both.row(0, 0, count)], both.caches[1])
    expected = functional.rms_norm(weights.embedding[ids], (hidden,), weights.final_norm, config.rms_norm_eps)
    close(hidden_states, expected)
    logits = both.native.logits(hidden_states)
    close(logits, functional.linear(hidden_states, weights.head))
    best, values = both.native.greedy(hidden_states)
    assert best == logits.argmax(-1).tolist()
    assert values == logits.amax(-1).tolist()


@pytest.mark.parametrize("inner", [2, 30, 64, 90])
@pytest.mark.parametrize("count", [1, 2, 5, 12, 31, 120])
def test_mlp(library: Library, inner: int, count: int) -> None:
    config = small_config(intermediate_size=inner)
    both = make_both(library, config, without(random_weights(config, inner), "o"))
    expected, found = both.run([both.row(0, 0, count)])
    close(found, expected)


@pytest.mark.parametrize("count", [1, 7, 13, 120])
def test_matrices_of_one_panel(library: Library, count: int) -> None:
    config = small_config(num_heads=1, num_kv_heads=1, hidden_size=4, intermediate_size=6, head_dim=2, vocab_size=5)
    both = make_both(library, config, random_weights(config, 6, BF16), BF16)
    hidden = both.native.run([both.row(0, 0, count)], both.caches[1])
    alone = torch.cat([both.native.run([both.row(0, at, at + 1)], both.caches[1]) for at in range(count)])
    assert torch.equal(hidden, alone)


@pytest.mark.parametrize("share", [1, 3, 7])
@pytest.mark.parametrize("dim", [32, 64, 80, 128])
@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_attention_of_prefills_and_decodes_together(library: Library, share: int, dim: int, block_size: int) -> None:
    """Lengths on both sides of block and chunk borders; NaN is in all that nobody wrote."""
    config = small_config(num_kv_heads=2, num_heads=2 * share, head_dim=dim)
    weights = without(random_weights(config, dim + share), "down")
    both = make_both(library, config, weights, block_size=block_size)
    ends = (block_size, block_size + 1, 63, 130)
    compare(both, [both.row(number, 0, end) for number, end in enumerate(ends)])
    compare(both, [both.row(number, end, end + 1) for number, end in enumerate(ends)])
    mixed = [both.row(0, ends[0] + 1, 70), both.row(1, ends[1] + 1, ends[1] + 2), both.row(3, 131, 200)]
    compare(both, mixed)
    assert bool(both.caches[1].keys.isnan().any())


def compare(both: Both, rows: list[Row]) -> None:
    expected, found = both.run(rows)
    close(found, expected)


@pytest.mark.parametrize("change", ["qkv_bias", "o_bias", "qk_norm"])
def test_what_families_add(library: Library, change: str) -> None:
    config = small_config(num_layers=2, **{change: True})
    both = make_both(library, config, random_weights(config, 3))
    compare(both, [both.row(0, 0, 9), both.row(1, 0, 1)])
    compare(both, [both.row(0, 9, 10), both.row(1, 1, 40)])


@pytest.mark.parametrize("hidden", [48, 64])
@pytest.mark.parametrize(("storage", "bits"), [(torch.float32, 0), (BF16, 0), (BF16, 8), (BF16, 4)])
def test_a_row_has_the_same_bits_alone_in_a_batch_in_chunks_and_on_any_threads(
    library: Library, storage: torch.dtype, bits: int, hidden: int
) -> None:
    config = small_config(num_layers=2, num_heads=6, hidden_size=hidden, intermediate_size=hidden + 32)
    weights = random_weights(config, 5, storage)
    lengths = (1, 7, 64, 150)
    results = []
    for threads in (1, 2, 3):
        both = make_both(library, config, weights, storage, threads=threads, bits=bits)
        rows = [both.row(number, 0, length) for number, length in enumerate(lengths)]
        whole = both.native.run(rows, both.caches[1])
        results.append(whole)
        alone = torch.cat([both.native.run([row], both.caches[1]) for row in rows])
        assert torch.equal(alone, whole)
        pieces = [both.native.run([both.row(3, at, at + 1)], both.caches[1]) for at in range(150)]
        assert torch.equal(torch.cat(pieces), whole[-150:])
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("kept", [(1, 0, 1, 1), (0, 0, 0, 0), (1, 7, 30, None), (None, 0, 64, 300)])
@pytest.mark.parametrize(("storage", "bits"), [(torch.float32, 0), (BF16, 0), (BF16, 8)])
def test_the_hidden_states_of_kept_tokens_are_those_of_a_step_that_keeps_all(
    library: Library, storage: torch.dtype, bits: int, kept: tuple[int | None, ...]
) -> None:
    """Over the border of two pieces as well; K and V of all tokens are written whatever is kept."""
    config = small_config(num_layers=2, num_heads=6)
    both = make_both(library, config, random_weights(config, 9, storage), storage, length=600, bits=bits)
    rows = [both.row(number, 0, length) for number, length in enumerate((1, 7, 64, 560))]
    whole = both.native.run(rows, both.caches[1]).split([row.count for row in rows])
    states = torch.cat([part[row.count - (row.count if last is None else last) :]
                        for part, row, last in zip(whole, rows, kept, strict=True)])  # fmt: skip
    filled = [both.caches[1].keys.clone(), both.caches[1].values.clone()]
    both.caches[1].keys[:, :-1] = both.caches[1].values[:, :-1] = torch.nan
    some = [replace(row, kept=last) for row, last in zip(rows, kept, strict=True)]
    expected, found = both.run(some)
    assert torch.equal(found, states)
    assert torch.equal(both.caches[1].keys.nan_to_num(), filled[0].nan_to_num())
    assert torch.equal(both.caches[1].values.nan_to_num(), filled[1].nan_to_num())
    assert expected.shape == found.shape
    if storage == torch.float32 and len(found):
        close(found, expected)


SEGMENT = 256
"""Keys that one task attends to at most when a token's keys are shared out; as in attention.h."""


@pytest.mark.thread
@pytest.mark.parametrize(
    ("kv_heads", "share", "dim", "storage", "bits"),
    [(1, 1, 18, torch.float32, 0), (3, 3, 64, BF16, 0), (2, 7, 32, BF16, 8)],
)
def test_keys_that_are_shared_out_give_the_same_bits(
    library: Library, kv_heads: int, share: int, dim: int, storage: torch.dtype, bits: int
) -> None:
    """A prompt's tasks go through all keys, a decode's are one for each segment: on every side of their borders the
    same, alone and beside others."""
    config = small_config(num_layers=2, num_kv_heads=kv_heads, num_heads=kv_heads * share, head_dim=dim)
    weights = random_weights(config, 8, storage)
    ends = [end + beside for end in (SEGMENT, 2 * SEGMENT) for beside in (-1, 0, 1, 2)]
    results = []
    for threads in (1, 3):
        both = make_both(library, config, weights, storage, threads=threads, bits=bits, requests=3, length=600)
        whole = both.native.run([both.row(0, 0, 600)], both.caches[1])
        both.native.run([both.row(1, 0, 300), both.row(2, 0, 520)], both.caches[1])
        beside = [both.row(1, 300, 301), both.row(2, 520, 540)]
        for end in ends:
            alone = both.native.run([both.row(0, end - 1, end)], both.caches[1])
            mixed = both.native.run([beside[0], both.row(0, end - 1, end), beside[1]], both.caches[1])
            assert torch.equal(alone[0], whole[end - 1])
            assert torch.equal(mixed[1], whole[end - 1])
        chunks = [both.native.run([both.row(0, at, min(600, at + 77))], both.caches[1]) for at in range(0, 600, 77)]
        assert torch.equal(torch.cat(chunks), whole)
        results.append(whole)
    assert torch.equal(results[0], results[1])


def test_more_segments_than_a_pool_takes_are_not_shared_out() -> None:
    """Requests of one prefix share its blocks, so a small cache holds many of them. The pool is one of 255 tasks."""
    few = built(Level((*levels()[0].flags, "-O1", "-DTASK_BITS=9"), frozenset()))
    config = small_config()
    for threads, most in ((2, 127), (1, 300)):
        both = make_both(few, config, random_weights(config, 4), threads=threads, requests=1, length=600)
        both.native.run([both.row(0, 0, 599)], both.caches[1])
        last = both.row(0, 599, 600)
        alone = both.native.run([last], both.caches[1])
        for count in (42, 43, most):
            assert torch.equal(both.native.run([last] * count, both.caches[1]), alone.repeat(count, 1))
        if threads > 1:
            with pytest.raises(OverflowError, match="lower max_num_seqs"):
                both.native.run([last] * (most + 1), both.caches[1])


@pytest.mark.parametrize("share", [1, 3, 7])
def test_attention_over_several_segments(library: Library, share: int) -> None:
    config = small_config(num_kv_heads=2, num_heads=2 * share, head_dim=64)
    both = make_both(library, config, without(random_weights(config, share), "down"), requests=3, length=600)
    ends = (SEGMENT, 2 * SEGMENT - 1, 590)
    compare(both, [both.row(number, 0, end) for number, end in enumerate(ends)])
    compare(both, [both.row(number, end, end + 1) for number, end in enumerate(ends)])
    compare(both, [both.row(0, SEGMENT + 1, 300), both.row(1, 2 * SEGMENT, 2 * SEGMENT + 1), both.row(2, 591, 600)])


@pytest.mark.parametrize(("hidden", "inner", "dim"), [(96, 70, 32), (128, 192, 64), (50, 64, 18)])
def test_bfloat16_stays_near_the_same_weights_in_float32(library: Library, hidden: int, inner: int, dim: int) -> None:
    config = small_config(num_layers=3, hidden_size=hidden, intermediate_size=inner, head_dim=dim, qk_norm=True)
    both = make_both(library, config, random_weights(config, 6, BF16), BF16)
    rows = [both.row(number, 0, 100) for number in range(3)]
    expected, found = both.run(rows)
    close(found, expected, share=0.02)
    assert both.caches[1].keys.dtype == BF16


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(("hidden", "inner", "dim"), [(48, 70, 32), (128, 192, 64), (50, 64, 18)])
@pytest.mark.parametrize("tied", [True, False])
def test_coded_weights_are_those_of_torch(
    library: Library, bits: int, hidden: int, inner: int, dim: int, tied: bool
) -> None:
    config = small_config(hidden_size=hidden, intermediate_size=inner, head_dim=dim, tie_word_embeddings=tied)
    both = make_both(library, config, random_weights(config, bits), bits=bits)
    for rows in ([both.row(0, 0, 1)], [both.row(1, 0, 2), both.row(2, 0, 5)], [both.row(0, 1, 40), both.row(1, 2, 3)]):
        expected, found = both.run(rows)
        close(found, expected, share=3e-4)
        close(both.native.logits(expected), both.eager.logits(expected), share=3e-4)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_row_that_is_no_number_spoils_no_other(library: Library, bits: int) -> None:
    config = small_config(tie_word_embeddings=False)
    both = make_both(library, config, random_weights(config, 2), bits=bits)
    hidden = torch.randn(5, config.hidden_size, generator=torch.Generator().manual_seed(1))
    expected = both.native.logits(hidden)
    hidden[1, 7], hidden[3, 40], hidden[4] = torch.nan, torch.inf, 0
    found = both.native.logits(hidden)
    assert bool(found[[1, 3]].isnan().all())
    assert torch.equal(found[[0, 2]], expected[[0, 2]])
    assert bool((found[4] == 0).all())
    assert [math.isnan(value) for value in both.native.greedy(hidden)[1]] == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("share", "dim", "block_size"),
    [(1, 32, 16), (2, 64, 32), (3, 64, 16), (4, 128, 48), (5, 96, 16), (6, 64, 16), (3, 64, 24)],
)
def test_few_rows_of_bfloat16_have_the_bits_of_many(library: Library, share: int, dim: int, block_size: int) -> None:
    """A decode's few rows may go through other code than those of a prompt; NaN is in all that nobody wrote."""
    config = small_config(num_layers=2, num_kv_heads=2, num_heads=2 * share, head_dim=dim)
    both, again = (
        make_both(library, config, random_weights(config, 9, BF16), BF16, block_size=block_size) for _ in range(2)
    )
    whole = both.native.run([both.row(0, 0, 140)], both.caches[1])
    alone = [again.native.run([again.row(0, at, at + 1)], again.caches[1]) for at in range(140)]
    assert torch.equal(torch.cat(alone), whole)
    assert bool(again.caches[1].values.isnan().any())


@pytest.mark.parametrize("seed", range(6))
def test_random_shapes(library: Library, seed: int) -> None:
    random = np.random.default_rng(seed)
    config = small_config(
        vocab_size=int(random.integers(5, 400)),
        hidden_size=2 * int(random.integers(1, 80)),
        intermediate_size=2 * int(random.integers(1, 120)),
        num_layers=2,
        num_kv_heads=(kv_heads := int(random.integers(1, 4))),
        num_heads=kv_heads * int(random.integers(1, 9)),
        head_dim=2 * int(random.integers(1, 50)),
    )
    both = make_both(library, config, random_weights(config, seed), block_size=int(random.integers(1, 40)), seed=seed)
    at = [0, 0, 0, 0]
    for _ in range(5):
        rows = []
        for number in np.flatnonzero(random.random(4) < 0.7).tolist() or [0]:
            count = int(random.choice([1, 1, random.integers(1, 39)]))
            rows.append(both.row(number, at[number], at[number] + count))
            at[number] += count
        expected, found = both.run(rows)
        close(found, expected, share=1e-4)


def test_of_equal_logits_the_first_wins_and_nan_is_told(best_library: Library) -> None:
    config = small_config(vocab_size=4000, tie_word_embeddings=False)
    weights = random_weights(config, 2)
    weights.head[1000:] = weights.head[:1000].repeat(3, 1)
    both = make_both(best_library, config, weights)
    hidden = torch.randn(9, config.hidden_size, generator=torch.Generator().manual_seed(1))
    ids, _ = both.native.greedy(hidden)
    assert max(ids) < 1000
    hidden[4, 7] = torch.nan
    ids, values = both.native.greedy(hidden)
    assert [math.isnan(value) for value in values] == [index == 4 for index in range(9)]
    assert all(0 <= token < 4000 for token in ids)


@pytest.mark.parametrize(("vocab", "where"), [(4000, 0), (4000, 3999), (4003, 2000), (4003, 4002)])
@pytest.mark.parametrize("count", [1, 9])
def test_a_single_logit_that_is_none_is_told(library: Library, vocab: int, where: int, count: int) -> None:
    config = small_config(vocab_size=vocab, tie_word_embeddings=False)
    weights = random_weights(config, 2)
    weights.head[where, 0] = torch.nan
    both = make_both(library, config, weights)
    hidden = torch.randn(count, config.hidden_size, generator=torch.Generator().manual_seed(1))
    assert all(math.isnan(value) for value in both.native.greedy(hidden)[1])


@pytest.mark.parametrize(
    ("tokens", "start", "table"),
    [([131], 0, [0]), ([-1], 0, [0]), ([1], 16, [0]), ([1], 0, [10**9]), ([1], 0, [-1]), ([1], 650, list(range(41)))],
)
def test_what_would_reach_outside_is_refused(
    best_library: Library, tokens: list[int], start: int, table: list[int]
) -> None:
    config = small_config()
    both = make_both(best_library, config, random_weights(config, 1))
    with pytest.raises(IndexError):
        both.native.run([Row(tokens, start, 1, np.array(table))], both.caches[1])


def test_a_cache_of_another_kind_is_refused(best_library: Library) -> None:
    config = small_config()
    both = make_both(best_library, config, random_weights(config, 1, BF16), BF16)
    with pytest.raises(ValueError, match="KV cache"):
        both.native.run([both.row(0, 0, 3)], both.caches[0])


def test_models_that_it_cannot_run_are_known() -> None:
    assert can_run(small_config(), BF16)
    assert not can_run(small_config(), torch.float16)
    assert not can_run(small_config(intermediate_size=7), torch.float32)


def test_closing_ends_its_threads_and_may_be_done_twice(best_library: Library) -> None:
    config = small_config()
    native = NativeDecoder(best_library, config, rope_table(config, 64), BF16, 3, 16)
    assert native.threads == 3
    native.close()
    native.close()


def test_a_fork_leaves_what_is_its_parents(best_library: Library) -> None:
    """Its threads are not there, and would be waited for."""
    config = small_config()
    native = NativeDecoder(best_library, config, rope_table(config, 64), BF16, 3, 16)
    child = os.fork()
    if child == 0:
        try:
            native.close()
        finally:
            os._exit(0)
    try:
        wait_until(lambda: os.waitpid(child, os.WNOHANG)[0] == child, 20.0, "the end of the child")
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    native.close()


def test_packed_rows() -> None:
    parts = pack_rows([Row([5, 6], 3, 2, np.array([9])), Row([7], 0, 1, np.array([4, 2]))])
    assert parts.ids.tolist() == [5, 6, 7]
    assert parts.positions.tolist() == [3, 4, 0]
    assert parts.rows.tolist() == [[0, 3, 2, 0], [2, 0, 1, 1]]
    assert parts.blocks.tolist() == [9, 4, 2]


@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("storage", [torch.float32, BF16])
def test_one_product_alone(library: Library, storage: torch.dtype, count: int) -> None:
    config = small_config(hidden_size=64)
    both = make_both(library, config, random_weights(config, 4, storage), storage)
    layer = both.weights.layers[0]
    random = torch.Generator().manual_seed(2)
    for name, matrix in ((Matrix.QKV, layer.qkv), (Matrix.O, layer.o), (Matrix.DOWN, layer.down)):
        rows = torch.randn(count, matrix.shape[1], generator=random).to(storage).float()
        found = both.native.product(0, name, rows, torch.empty(count, len(matrix)))
        close(found, functional.linear(rows, matrix))


def test_limits_are_measured_by_real_work(best_library: Library) -> None:
    config = small_config()
    both = make_both(best_library, config, random_weights(config, 4))
    both.native.read(torch.ones(1024 * 1024))
    assert both.native.multiply_adds(2) == 2 * 12 * 2000 * best_library.width()
