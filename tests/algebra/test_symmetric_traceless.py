"""Bases of the symmetric traceless tensors. Exact numbers rounded once: 1e-14 unless said otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sympy import Rational

from flashcart.algebra.symmetric_traceless import apolar, basis, component_norm, full_tensors

from .full_tensors import double_factorial, unit_vector_tensor

RANKS = range(7)
EXACT = 1e-14


def tensors(rank: int) -> np.ndarray:
    """[2 rank + 1, 3, .., 3]."""
    return np.array(full_tensors(rank)).reshape(-1, *(3,) * rank)


def unit_vectors(n: int, seed: int = 0) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(n, 3))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("rank", RANKS)
def test_there_are_2l_plus_1_basis_tensors_and_they_are_orthonormal(rank):
    rows = np.array(full_tensors(rank))
    assert rows.shape == (2 * rank + 1, 3**rank)
    np.testing.assert_allclose(rows @ rows.T, np.eye(2 * rank + 1), atol=EXACT)


@pytest.mark.parametrize("rank", [2, 3, 4, 5, 6])
def test_basis_tensors_are_symmetric(rank):
    t = tensors(rank)
    for axis in range(1, rank):
        np.testing.assert_allclose(t, t.swapaxes(axis, axis + 1), atol=EXACT)


@pytest.mark.parametrize("rank", [2, 3, 4, 5, 6])
def test_basis_tensors_are_traceless(rank):
    assert np.abs(np.trace(tensors(rank), axis1=1, axis2=2)).max() < EXACT


@pytest.mark.parametrize("rank", RANKS)
def test_basis_polynomials_are_orthonormal_exactly(rank):
    members = basis(rank)
    for i, first in enumerate(members):
        for j, second in enumerate(members):
            product = apolar(first.polynomial, second.polynomial, rank)
            assert product * first.square == 1 if i == j else product == 0


def test_rank_1_is_x_y_z():
    np.testing.assert_array_equal(np.array(full_tensors(1)), np.eye(3))


@pytest.mark.parametrize("rank", RANKS)
def test_unit_vector_tensor_squared_is_double_factorial_over_factorial(rank):
    t = unit_vector_tensor(unit_vectors(1)[0], rank)
    assert np.sum(t * t) == pytest.approx(double_factorial(2 * rank - 1) / math.factorial(rank), rel=1e-13)


@pytest.mark.parametrize("rank", RANKS)
def test_basis_spans_the_unit_vector_tensors(rank):
    """The projection on the basis loses nothing of a tensor that is symmetric and traceless by its own formula."""
    rows = np.array(full_tensors(rank))
    t = unit_vector_tensor(unit_vectors(1, seed=3)[0], rank).ravel()
    np.testing.assert_allclose(rows.T @ (rows @ t), t, atol=1e-13 * max(1.0, np.abs(t).max()))


@pytest.mark.parametrize("rank", RANKS)
def test_contraction_with_a_unit_vector_is_the_legendre_polynomial(rank):
    u, r = unit_vectors(2, seed=1)
    rows = np.array(full_tensors(rank))
    power = np.array(1.0)
    for _ in range(rank):
        power = np.multiply.outer(power, r)
    components = rows @ unit_vector_tensor(u, rank).ravel()
    expected = np.polynomial.legendre.legval(u @ r, [0] * rank + [1])
    assert components @ (rows @ power.ravel()) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("rank", RANKS)
def test_component_norm_makes_the_squared_norm_2l_plus_1(rank):
    """u^l projected has the squared norm l!/(2l-1)!!: times component_norm it is 2l + 1."""
    assert component_norm(rank) * Rational(math.factorial(rank), double_factorial(2 * rank - 1)) == 2 * rank + 1
