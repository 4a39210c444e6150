"""The product layer: equivariance, its formula, elements."""

from __future__ import annotations

import pytest
import torch

from flashcart.cartesian import components, rotate
from flashcart.nn.correlation import ProductLayer
from flashcart.nn.product import TensorProduct

from ..rotations import assert_same, every_orthogonal_matrix, normal

SPECIES = torch.tensor([0, 1, 1, 0])


def layer(ranks=(2, 2), degree=3, *, n_elements=None, reduced=False, layer_norm=False) -> ProductLayer:
    """A layer with random parameters everywhere."""
    torch.manual_seed(0)
    made = ProductLayer(ranks, 3, degree, n_elements=n_elements, reduced=reduced, layer_norm=layer_norm).double()
    for parameter in made.parameters():
        parameter.data.normal_()
    return made


@every_orthogonal_matrix
@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_product_layer_is_equivariant(degree, reduced, matrix):
    product = layer(degree=degree, reduced=reduced, n_elements=2, layer_norm=True)
    x = normal(4, 9, 3)
    assert_same(product(rotate(x, matrix), SPECIES), rotate(product(x, SPECIES), matrix))


@every_orthogonal_matrix
def test_scalar_outputs_are_invariant(matrix):
    product = layer((2, 0))
    x = normal(4, 9, 3)
    assert product(x, SPECIES).shape == (4, 1, 3)
    assert_same(product(rotate(x, matrix), SPECIES), product(x, SPECIES))


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_layer_is_a_polynomial_of_its_degree(degree, reduced):
    """Scaling the input by s: differences of order degree + 1 over s vanish, of order degree do not."""
    product = layer((1, 1), degree, reduced=reduced)
    x = normal(2, 4, 3)
    values = torch.stack([product(s * x, SPECIES[:2]) for s in range(degree + 2)])
    differences = values
    for _ in range(degree):
        differences = differences[1:] - differences[:-1]
    scale = differences.abs().max()
    assert scale > 1e-3
    assert (differences[1:] - differences[:-1]).abs().max() < 1e-11 * scale.clamp(min=1) * 2**degree


def test_kept_paths_follow_the_formula():
    product, x = layer((1, 1), 2), normal(4, 4, 3)
    square = TensorProduct(1, 1, 1, 3)
    first = product.maps[0](x)
    expected = first + product.maps[1](square(first, x)) + x
    assert_same(product(x, SPECIES), expected)


def test_reduced_paths_follow_the_formula():
    product, x = layer((1, 1), 2, reduced=True), normal(4, 4, 3)
    square = TensorProduct(1, 1, 1, 3, sum_paths=True)
    counts = torch.tensor([square.paths_per_rank()[path.l_out] for path in square.paths], dtype=x.dtype)
    power = square(x, x, (1 + product.deltas[0][0]) / counts.sqrt().unsqueeze(1))
    paths = torch.cat([x[:, :1], power[:, :1], x[:, 1:], power[:, 1:]], dim=1)
    assert_same(product(x, SPECIES), product.mix(paths) + x)


@pytest.mark.parametrize("reduced", [False, True])
def test_weights_per_element_depend_on_the_element_alone(reduced):
    product, x = layer(n_elements=2, reduced=reduced), normal(4, 9, 3)
    out, other = product(x, SPECIES), product(x, 1 - SPECIES)
    assert (out - other).abs().amin(dim=0).max() > 1e-3
    order = torch.tensor([2, 0, 3, 1])
    assert_same(product(x[order], SPECIES[order]), out[order])


def test_no_rows_give_no_rows():
    x = torch.zeros(0, components(2), 3, dtype=torch.float64)
    for reduced in (False, True):
        assert layer(reduced=reduced, n_elements=2)(x, SPECIES[:0]).shape == x.shape
