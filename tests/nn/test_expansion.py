"""CartesianExpansion: shapes, norms, equivariance, scale."""

from __future__ import annotations

import pytest
import torch

from flashcart.cartesian import rank_slice, rotate, to_cartesian
from flashcart.errors import UserError
from flashcart.nn import CartesianExpansion

from ..rotations import assert_same, every_orthogonal_matrix, normal


@every_orthogonal_matrix
def test_expansion_is_equivariant(matrix):
    vectors = normal(6, 3)
    expansion = CartesianExpansion(5)
    assert_same(expansion(vectors @ matrix.T), rotate(expansion(vectors), matrix))


@pytest.mark.parametrize("l", range(6))
def test_squared_norm_of_rank_l_is_2l_plus_1(l):
    y = CartesianExpansion(5)(normal(6, 3))
    torch.testing.assert_close(y[:, rank_slice(l)].square().sum(1), torch.full((6,), 2.0 * l + 1, dtype=y.dtype))


def test_rank_1_is_the_scaled_direction():
    vectors = normal(6, 3)
    y = CartesianExpansion(1)(vectors)
    assert_same(y[:, 1:], 3**0.5 * vectors / vectors.norm(dim=1, keepdim=True), 1e-14)


def test_rank_2_is_the_traceless_outer_product():
    vectors = normal(6, 3)
    u = vectors / vectors.norm(dim=1, keepdim=True)
    outer = u.unsqueeze(2) * u.unsqueeze(1) - torch.eye(3, dtype=u.dtype) / 3
    expected = outer * (5 / outer.square().sum((1, 2), keepdim=True)).sqrt()
    assert_same(to_cartesian(CartesianExpansion(2)(vectors)[:, 4:], 2), expected, 1e-13)


def test_length_of_the_vectors_does_not_matter():
    vectors = normal(6, 3)
    assert_same(CartesianExpansion(3)(vectors), CartesianExpansion(3)(7.5 * vectors), 1e-13)


def test_gradients_pass_torchs_check():
    vectors = normal(3, 3).requires_grad_()
    assert torch.autograd.gradcheck(CartesianExpansion(3), vectors)
    assert torch.autograd.gradgradcheck(CartesianExpansion(3), vectors)


def test_no_edges_give_no_rows():
    assert CartesianExpansion(3)(torch.zeros(0, 3)).shape == (0, 16)


def test_explicit_triton_on_cpu_tensors_is_an_error():
    with pytest.raises(UserError, match="triton"):
        CartesianExpansion(2, backend="triton")(normal(2, 3))
