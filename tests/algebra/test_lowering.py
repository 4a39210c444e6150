"""Algebra as contractions: expansions and products, evaluated by the interpreter."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from flashcart.algebra.lowering import expansion, make, product
from flashcart.algebra.symmetric_traceless import full_tensors
from flashcart.ir.contraction import Index
from flashcart.ir.interpret import interpret
from flashcart.ir.ranks import path_offsets, product_paths, rank_slice
from flashcart.ir.requests import ExpansionRequest, ProductRequest, Weights

from .full_tensors import unit_vector_tensor

ROW_PRODUCT = ProductRequest(2, 2, 2, edges=False, second_channels=True, weights=Weights.NONE, sum_paths=False)


def unit_vectors(n: int) -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(n, 3))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("rank", range(6))
def test_expansion_is_the_unit_vector_tensor_with_squared_norm_2l_plus_1(rank):
    u = unit_vectors(5)
    (y,) = interpret(expansion(ExpansionRequest(5)), [u])
    part = y[:, rank_slice(rank)]
    expected = np.stack([np.array(full_tensors(rank)) @ unit_vector_tensor(v, rank).ravel() for v in u])
    expected *= np.sqrt((2 * rank + 1) / np.sum(expected**2, axis=1, keepdims=True))
    np.testing.assert_allclose(part, expected, atol=1e-13)
    np.testing.assert_allclose(np.sum(part**2, axis=1), 2 * rank + 1, atol=1e-13)


def test_expansion_starts_with_one_and_the_scaled_vector():
    u = unit_vectors(3)
    (y,) = interpret(expansion(ExpansionRequest(1)), [u])
    np.testing.assert_allclose(y, np.concatenate([np.ones((3, 1)), np.sqrt(3) * u], axis=1), atol=1e-15)


def test_all_paths_carry_the_same_variance():
    """Unit-variance inputs give unit-variance outputs: 20,000 samples, 6 standard errors (1 %) of a variance."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 20_000, 9, 1))
    (out,) = interpret(product(ROW_PRODUCT), [x, y])
    offsets = path_offsets(product_paths(2, 2, 2))
    for start, stop in pairwise(offsets):
        assert np.mean(out[:, start:stop] ** 2) == pytest.approx(1.0, abs=0.06)


def test_summed_paths_are_the_sum_of_kept_paths():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 4, 9, 3))
    (kept,) = interpret(product(ROW_PRODUCT), [x, y])
    (summed,) = interpret(product(replace(ROW_PRODUCT, sum_paths=True)), [x, y])
    paths = product_paths(2, 2, 2)
    offsets = path_offsets(paths)
    expected = np.zeros((4, 9, 3))
    for path, start, stop in zip(paths, offsets[:-1], offsets[1:], strict=True):
        expected[:, rank_slice(path.l_out)] += kept[:, start:stop]
    np.testing.assert_allclose(summed, expected, atol=1e-14)


def test_weights_multiply_each_path():
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 4, 9, 3))
    paths = product_paths(2, 2, 2)
    weights = rng.normal(size=(4, len(paths), 3))
    (plain,) = interpret(product(ROW_PRODUCT), [x, y])
    (weighted,) = interpret(product(replace(ROW_PRODUCT, weights=Weights.ROW)), [x, y, weights])
    per_component = np.repeat(weights, [2 * path.l_out + 1 for path in paths], axis=1)
    np.testing.assert_allclose(weighted, plain * per_component, atol=1e-14)


def test_symmetric_product_equals_the_kept_half_of_the_full_one():
    x = np.random.default_rng(4).normal(size=(4, 9, 3))
    (full,) = interpret(product(ROW_PRODUCT), [x, x])
    (half,) = interpret(product(replace(ROW_PRODUCT, symmetric=True)), [x])
    paths = product_paths(2, 2, 2)
    offsets = path_offsets(paths)
    kept = np.concatenate(
        [full[:, offsets[n] : offsets[n + 1]] for n, path in enumerate(paths) if path.l_first <= path.l_second], axis=1
    )
    np.testing.assert_allclose(half, kept, atol=1e-14)


def test_edge_products_gather_from_senders_and_sum_at_receivers():
    program = product(replace(ROW_PRODUCT, edges=True, second_channels=False, weights=Weights.ROW))
    assert [operand.index for operand in program.inputs] == [Index.SENDER, Index.ROW, Index.ROW]
    assert program.outputs[0].index is Index.RECEIVER


def test_shared_weights_have_one_row():
    program = product(replace(ROW_PRODUCT, weights=Weights.SHARED))
    assert program.inputs[2].index is Index.SHARED


@pytest.mark.parametrize("request_", [ExpansionRequest(2), ROW_PRODUCT])
def test_make_gives_the_same_text_every_time(request_):
    assert make(request_).text == make(request_).text
