"""EquivariantLinear: equivariance, scale, elements, what Muon sees."""

from __future__ import annotations

import copy

import pytest
import torch

from flashcart.cartesian import rank_slice, rotate
from flashcart.nn import EquivariantLinear
from flashcart.nn.product import TensorProduct

from ..rotations import assert_same, every_orthogonal_matrix, normal


@every_orthogonal_matrix
def test_linear_maps_are_equivariant(matrix):
    linear = EquivariantLinear([1, 1, 1], 3, 5).double()
    x = normal(4, 9, 3)
    assert_same(linear(rotate(x, matrix)), rotate(linear(x), matrix))


@every_orthogonal_matrix
def test_linear_maps_over_paths_are_equivariant(matrix):
    product = TensorProduct(2, 2, 2, channels=3)
    linear = EquivariantLinear(product.paths_per_rank(), 3, 4).double()
    x, y = normal(4, 9, 3), normal(4, 9, 3, seed=1)
    assert_same(linear(product(rotate(x, matrix), rotate(y, matrix))), rotate(linear(product(x, y)), matrix))


def test_each_rank_is_its_own_matrix_times_channels():
    linear = EquivariantLinear([1, 1], 3, 5).double()
    x = normal(4, 4, 3)
    expected = torch.cat([x[:, rank_slice(l)] @ linear.matrices[l] / 3**0.5 for l in range(2)], dim=1)
    assert_same(linear(x), expected, 1e-14)


def test_paths_are_summed_with_their_own_matrices():
    linear = EquivariantLinear([0, 2], 3, 5).double()
    x = normal(4, 6, 3)
    first, second = linear.matrices[0].split(3)
    expected = (x[:, :3] @ first + x[:, 3:] @ second) / 6**0.5
    assert_same(linear(x)[:, 1:], expected, 1e-14)
    assert torch.all(linear(x)[:, :1] == 0)  # a rank without paths


def test_outputs_have_unit_variance_at_the_start():
    """2,000 rows x 64 channels of one random map: its variance scatters by sqrt(2/64) = 18 % at most; 4 times that."""
    torch.manual_seed(0)
    linear = EquivariantLinear([1, 3], 64, 64).double()
    out = linear(normal(2000, 10, 64))
    assert out[:, 0].var().item() == pytest.approx(1, abs=0.2)
    assert out[:, 1:].var().item() == pytest.approx(1, abs=0.2)


def test_every_matrix_is_a_two_dimensional_parameter():
    linear = EquivariantLinear([2, 0, 1], 3, 5, n_elements=2)
    assert [tuple(p.shape) for p in linear.parameters()] == [(6, 5), (3, 5)] * 2


def test_maps_per_element_use_the_matrices_of_the_element():
    linear = EquivariantLinear([1, 2], 3, 5, n_elements=3).double()
    x, species = normal(6, 7, 3), torch.tensor([2, 0, 2, 1, 0, 2])
    out = linear(x, species)
    for element in range(3):
        single = EquivariantLinear([1, 2], 3, 5).double()
        for mine, theirs in zip(single.parameters(), list(linear.parameters())[2 * element :], strict=False):
            mine.data.copy_(theirs)
        rows = species == element
        assert_same(out[rows], single(x[rows]), 1e-14)


def test_maps_per_element_are_independent_of_absent_elements():
    linear = EquivariantLinear([1], 3, 2, n_elements=2).double()
    x = normal(3, 1, 3)
    (gradient,) = torch.autograd.grad(linear(x, torch.zeros(3, dtype=torch.int64)).sum(), linear.matrices[1])
    assert torch.all(gradient == 0)


def test_zero_start_gives_zeros_but_gradients():
    linear = EquivariantLinear([1, 1], 3, 3, zero=True).double()
    out = linear(normal(4, 4, 3))
    assert torch.all(out == 0)
    (gradient,) = torch.autograd.grad(out.sum(), linear.matrices[0])
    assert gradient.abs().max() > 0


def test_gradients_pass_torchs_check():
    linear = EquivariantLinear([1, 2], 2, 2, n_elements=2).double()
    species = torch.tensor([0, 1, 1])
    x = normal(3, 7, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda t, *_: linear(t, species), [x, *linear.parameters()])
    assert torch.autograd.gradgradcheck(lambda t, *_: linear(t, species), [x, *linear.parameters()])


def test_no_rows_give_no_rows():
    assert EquivariantLinear([1, 1], 3, 5)(torch.zeros(0, 4, 3)).shape == (0, 4, 5)
    species = torch.zeros(0, dtype=torch.int64)
    assert EquivariantLinear([1, 1], 3, 5, n_elements=2)(torch.zeros(0, 4, 3), species).shape == (0, 4, 5)


@pytest.mark.parametrize("n_elements", [None, 2])
def test_a_frozen_map_follows_its_matrices(n_elements):
    """Frozen matrices are joined once; whatever changes them must be seen."""
    linear = EquivariantLinear([1, 2], 3, 5, n_elements=n_elements).requires_grad_(False)
    other = EquivariantLinear([1, 2], 3, 5, n_elements=n_elements)
    x, species = torch.randn(4, 7, 3), torch.tensor([0, 1, 1, 0])
    before = linear(x, species)
    assert torch.equal(linear(x, species), before)
    linear.matrices[1].mul_(2)
    doubled = linear(x, species)
    assert not torch.equal(doubled, before)
    linear.matrices[1].data = linear.matrices[1] / 2
    torch.testing.assert_close(linear(x, species), before)
    linear.load_state_dict(other.state_dict())
    assert torch.equal(linear(x, species), other(x, species))
    assert linear.double()(x.double(), species).dtype == torch.float64
    thawed = linear.requires_grad_(True)(x.double(), species)
    assert thawed.requires_grad


def test_a_copy_of_a_frozen_map_is_its_own():
    linear = EquivariantLinear([1], 3, 5).requires_grad_(False)
    x = torch.randn(4, 1, 3)
    before = linear(x)
    twin = copy.deepcopy(linear)
    twin.matrices[0].zero_()
    assert torch.equal(linear(x), before)
    assert torch.equal(twin(x), torch.zeros_like(before))
