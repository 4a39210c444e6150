"""What docs/conventions.md says of tensors is what the code does."""

from __future__ import annotations

import pytest
import torch

from flashcart.algebra.product import normalised_coupling
from flashcart.cartesian import rank_slice
from flashcart.ir.ranks import Path
from flashcart.nn import CartesianExpansion, TensorProduct

EXACT = {"rtol": 0, "atol": 1e-14}  # float64 rounding of numbers of order one


@pytest.fixture(scope="module")
def directions() -> torch.Tensor:
    vectors = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return vectors / vectors.norm(dim=1, keepdim=True)


def test_rank_one_is_x_y_z(directions) -> None:
    y = CartesianExpansion(1)(directions)
    torch.testing.assert_close(y[:, rank_slice(1)], 3**0.5 * directions, **EXACT)


def test_rank_two_is_xy_yz_zz_xz_xx_minus_yy(directions) -> None:
    x, y, z = directions.unbind(1)
    expected = 15**0.5 * torch.stack([x * y, y * z, (3 * z * z - 1) / 12**0.5, x * z, (x * x - y * y) / 2], dim=1)
    torch.testing.assert_close(CartesianExpansion(2)(directions)[:, rank_slice(2)], expected, **EXACT)


def test_rank_three_has_no_phase(directions) -> None:
    x, y, z = directions.unbind(1)
    values = CartesianExpansion(3)(directions)[:, rank_slice(3)]
    polynomials = [
        3 * x * x * y - y**3,
        x * y * z,
        y * (5 * z * z - 1),
        z * (5 * z * z - 3),
        x * (5 * z * z - 1),
        z * (x * x - y * y),
        x**3 - 3 * x * y * y,
    ]
    for m, polynomial in enumerate(polynomials):
        ratio = values[:, m] / polynomial
        torch.testing.assert_close(ratio, ratio[:1].abs().expand_as(ratio), rtol=1e-11, atol=0)


def test_directions_have_squared_norm_2l_plus_1(directions) -> None:
    y = CartesianExpansion(4)(directions)
    for rank in range(5):
        norms = y[:, rank_slice(rank)].square().sum(1)
        torch.testing.assert_close(norms, torch.full_like(norms, 2 * rank + 1), rtol=1e-13, atol=0)


def test_paths_are_ordered_by_output_then_first_then_second_rank() -> None:
    paths = [(path.l_out, path.l_first, path.l_second) for path in TensorProduct(2, 3, 3, 1).paths]
    assert paths == sorted(paths)


def test_squares_of_a_coupling_sum_to_2l_plus_1() -> None:
    for path in TensorProduct(3, 3, 3, 1).paths:
        total = sum(value**2 for value in normalised_coupling(path).values())
        assert total == pytest.approx(2 * path.l_out + 1, rel=1e-13)


def test_a_contraction_of_two_vectors_is_positive_for_equal_ones() -> None:
    assert all(value > 0 for value in normalised_coupling(Path(0, 1, 1)).values())
