"""Full Cartesian tensors and rotation; orthonormal bases in float64: 1e-13."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from flashcart import cartesian
from flashcart.cartesian import components, from_cartesian, rank_slice, rotate, to_cartesian
from flashcart.errors import UserError

from .rotations import ORTHOGONAL, assert_same, every_orthogonal_matrix, normal, random_rotation

RANKS = range(6)


@pytest.mark.parametrize("l", RANKS)
def test_round_trip_gives_the_components_back(l):
    x = normal(4, 2 * l + 1, 3)
    full = to_cartesian(x, l)
    assert full.shape == (4, *(3,) * l, 3)
    assert_same(from_cartesian(full, l), x, 1e-13)


@pytest.mark.parametrize("l", RANKS)
def test_full_tensors_are_symmetric_and_traceless(l):
    full = to_cartesian(normal(2, 2 * l + 1, 3), l)
    for axis in range(1, l):
        torch.testing.assert_close(full, full.transpose(axis, axis + 1), rtol=0, atol=1e-13)
    if l >= 2:
        assert full.diagonal(dim1=1, dim2=2).sum(-1).abs().max() < 1e-13


@pytest.mark.parametrize("l", RANKS)
def test_dot_products_of_components_are_full_contractions(l):
    x, y = normal(2 * l + 1, seed=1), normal(2 * l + 1, seed=2)
    full = torch.sum(to_cartesian(x, l, dim=0) * to_cartesian(y, l, dim=0))
    assert float(full) == pytest.approx(float(x @ y), abs=1e-13)


def test_rank_0_and_rank_1_are_the_number_and_the_vector():
    scalar, vector = normal(5, 1), normal(5, 3)
    assert torch.equal(to_cartesian(scalar, 0), scalar[:, 0])
    assert torch.equal(to_cartesian(vector, 1), vector)


def test_from_cartesian_projects_out_what_is_not_symmetric_and_traceless():
    t = normal(2, 3, 3)
    symmetric = 0.5 * (t + t.transpose(1, 2))
    trace = t.diagonal(dim1=1, dim2=2).sum(-1)
    expected = symmetric - trace[:, None, None] * torch.eye(3, dtype=t.dtype) / 3
    assert_same(to_cartesian(from_cartesian(t, 2), 2), expected, 1e-13)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_the_component_axis_may_stand_anywhere(dim):
    x = normal(5, 5, 5)
    expected = to_cartesian(x.movedim(dim, 1), 2)
    full = to_cartesian(x, 2, dim=dim)
    assert torch.equal(full.movedim((dim % 3, dim % 3 + 1), (1, 2)), expected)
    assert_same(from_cartesian(full, 2, dim=dim), x, 1e-13)


@pytest.mark.parametrize("l", RANKS)
@every_orthogonal_matrix
def test_rotate_turns_every_index_of_the_full_tensor(matrix, l):
    x = normal(3, components(5), 2)
    part = rotate(x, matrix)[:, rank_slice(l)]
    full = to_cartesian(x[:, rank_slice(l)], l)
    for axis in range(1, l + 1):
        full = torch.tensordot(full, matrix, dims=([axis], [1])).movedim(-1, axis)
    assert_same(part, from_cartesian(full, l), 1e-13)


def test_rotations_compose():
    first, second = random_rotation(5), random_rotation(6, proper=False)
    x = normal(2, components(4), 3)
    assert_same(rotate(rotate(x, first), second), rotate(x, second @ first))


def test_rotation_keeps_norms_rank_by_rank():
    x = normal(2, components(4), 3)
    turned = rotate(x, ORTHOGONAL["rotation"])
    assert (turned - x).abs().max() > 0.1
    for l in range(5):
        assert_same(turned[:, rank_slice(l)].square().sum(1), x[:, rank_slice(l)].square().sum(1), 1e-13)


def test_inversion_multiplies_rank_l_by_its_parity():
    x = normal(2, components(3), 1)
    turned = rotate(x, ORTHOGONAL["inversion"])
    for l in range(4):
        assert_same(turned[:, rank_slice(l)], (-1) ** l * x[:, rank_slice(l)], 1e-13)


def test_rotation_along_another_axis():
    x = normal(components(2), 4)
    expected = rotate(x.t(), ORTHOGONAL["rotation"])
    assert_same(rotate(x, ORTHOGONAL["rotation"], dim=0), expected.t())


def test_rotate_is_differentiable_in_the_tensor():
    x = normal(2, components(2), 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: rotate(t, ORTHOGONAL["rotation"]), x)


def test_float32_tensors_stay_float32():
    x = normal(2, components(2), 1).float()
    assert rotate(x, ORTHOGONAL["rotation"]).dtype is torch.float32
    assert to_cartesian(x[:, 4:9], 2).dtype is torch.float32


@pytest.mark.parametrize(
    "matrix", [2 * torch.eye(3), torch.ones(3, 3), torch.full((3, 3), torch.nan), torch.zeros(3, 3)]
)
def test_matrices_that_are_not_orthogonal_are_refused(matrix):
    with pytest.raises(UserError, match="not orthogonal"):
        rotate(normal(2, 4, 1), matrix)


def test_matrices_of_another_size_are_refused():
    with pytest.raises(UserError, match="3x3"):
        rotate(normal(2, 4, 1), torch.eye(2))


@pytest.mark.parametrize("n", [0, 2, 5])
def test_rotate_refuses_a_number_of_components_that_is_no_square(n):
    with pytest.raises(UserError, match=f"{n} components"):
        rotate(torch.zeros(2, n, 1), torch.eye(3))


def test_conversions_refuse_wrong_shapes():
    with pytest.raises(UserError, match="rank 2 has 5 components"):
        to_cartesian(torch.zeros(2, 3), 2)
    with pytest.raises(UserError, match="2 axes of size 3"):
        from_cartesian(torch.zeros(2, 3, 4), 2)
    with pytest.raises(UserError, match="at least 0"):
        to_cartesian(torch.zeros(2, 3), -1)
    with pytest.raises(UserError, match="dim=4"):
        to_cartesian(torch.zeros(2, 3), 1, dim=4)


def test_everything_public_is_there():
    assert set(cartesian.__all__) == {"components", "from_cartesian", "rank_slice", "rotate", "to_cartesian"}


def test_importing_does_not_import_sympy():
    program = "import sys, flashcart.cartesian; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
