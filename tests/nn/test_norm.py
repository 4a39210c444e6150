"""The equivariant layer norm."""

from __future__ import annotations

import torch

from flashcart.cartesian import rotate
from flashcart.nn.norm import LayerNorm, per_component

from ..rotations import assert_same, every_orthogonal_matrix, normal


@every_orthogonal_matrix
def test_layer_norm_is_equivariant(matrix):
    norm = LayerNorm(2, 3).double()
    norm.gain.data.normal_()
    x = normal(4, 9, 3)
    assert_same(norm(rotate(x, matrix)), rotate(norm(x), matrix))


def test_layer_norm_makes_the_mean_square_one():
    norm = LayerNorm(2, 3).double()
    out = norm(5.0 * normal(4, 9, 3))
    squares = torch.stack([out[:, l * l : (l + 1) ** 2].square().sum(1) / (2 * l + 1) for l in range(3)], dim=1)
    torch.testing.assert_close(squares.mean((1, 2)), torch.ones(4, dtype=out.dtype), rtol=1e-5, atol=0)  # epsilon 1e-6


def test_layer_norm_of_zero_is_zero_with_finite_gradients():
    norm = LayerNorm(1, 2).double()
    x = torch.zeros(1, 4, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(norm(x).sum(), x)
    assert torch.all(norm(x) == 0)
    assert torch.isfinite(gradient).all()


def test_values_per_rank_are_repeated_for_components():
    values = torch.arange(3.0).unsqueeze(1)
    assert per_component(values).squeeze(1).tolist() == [0, 1, 1, 1, 2, 2, 2, 2, 2]
