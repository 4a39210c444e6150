"""TensorProduct: shapes and forms of a call, equivariance, traces, and forms that must agree with each other."""

from __future__ import annotations

import pytest
import torch

from flashcart.cartesian import components, rank_slice, rotate, to_cartesian
from flashcart.errors import UserError
from flashcart.ir.ranks import path_offsets
from flashcart.nn import CartesianExpansion, TensorProduct

from ..rotations import assert_same, every_orthogonal_matrix, normal

SENDERS, RECEIVERS = torch.tensor([0, 1, 2, 0, 3]), torch.tensor([1, 0, 0, 2, 2])
EDGES = {"senders": SENDERS, "receivers": RECEIVERS}


def rotate_paths(product: TensorProduct, out: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Rotate an output that keeps its paths."""
    if product.sum_paths:
        return rotate(out, matrix)
    turned = out.clone()
    for path, start in zip(product.paths, path_offsets(product.paths), strict=False):
        stop = start + 2 * path.l_out + 1
        ranks = out.new_zeros(out.shape[0], components(path.l_out), out.shape[2])
        ranks[:, rank_slice(path.l_out)] = out[:, start:stop]
        turned[:, start:stop] = rotate(ranks, matrix)[:, rank_slice(path.l_out)]
    return turned


@every_orthogonal_matrix
@pytest.mark.parametrize("ranks", [(0, 3, 3), (1, 1, 1), (2, 3, 3), (2, 2, 0)])
@pytest.mark.parametrize("sum_paths", [False, True])
def test_edge_products_are_equivariant(ranks, sum_paths, matrix):
    product = TensorProduct(*ranks, channels=2, sum_paths=sum_paths)
    x, y, w = normal(4, components(ranks[0]), 2), normal(5, components(ranks[1])), normal(5, product.n_paths, 2)
    turned = product(rotate(x, matrix), rotate(y, matrix), w, **EDGES)
    assert_same(turned, rotate_paths(product, product(x, y, w, **EDGES), matrix))


@every_orthogonal_matrix
@pytest.mark.parametrize("symmetric", [False, True])
def test_row_products_are_equivariant(symmetric, matrix):
    product = TensorProduct(2, 2, 2, channels=2, symmetric=symmetric)
    operands = [normal(4, 9, 2, seed=n) for n in range(1 if symmetric else 2)]
    turned = product(*(rotate(x, matrix) for x in operands))
    assert_same(turned, rotate_paths(product, product(*operands), matrix))


def test_ranks_up_to_5_are_equivariant():
    from ..rotations import ORTHOGONAL

    matrix = ORTHOGONAL["rotation and reflection"]
    product = TensorProduct(5, 5, 5, channels=1, sum_paths=True)
    x, y = normal(2, 36, 1), normal(2, 36, 1, seed=1)
    assert_same(product(rotate(x, matrix), rotate(y, matrix)), rotate(product(x, y), matrix))


@pytest.mark.parametrize("l", [2, 3])
def test_outputs_are_traceless(l):
    product = TensorProduct(2, 3, 3, channels=2, sum_paths=True)
    out = product(normal(4, 9, 2), normal(5, 16), **EDGES)
    full = to_cartesian(out[:, rank_slice(l)], l)
    assert full.abs().max() > 0.1
    assert full.diagonal(dim1=1, dim2=2).sum(-1).abs().max() < 1e-13


def test_the_documented_signature_works():
    product = TensorProduct(l_in=2, l_edge=3, l_out=3, channels=16, backend="torch")
    y = CartesianExpansion(3)(normal(5, 3))
    assert y.shape == (5, 16)
    out = product(normal(4, 9, 16), y, normal(5, product.n_paths, 16), **EDGES, n_nodes=4)
    assert product.n_paths == 17
    assert product.paths_per_rank() == (3, 5, 5, 4)
    assert out.shape == (4, product.out_components, 16)
    assert product.out_components == 3 + 5 * 3 + 5 * 5 + 4 * 7


def test_edge_products_are_sums_of_row_products():
    product = TensorProduct(2, 2, 2, channels=3)
    x, y, w = normal(4, 9, 3), normal(5, 9), normal(5, product.n_paths, 3)
    rows = product(x[SENDERS], y, w)
    expected = rows.new_zeros(4, *rows.shape[1:]).index_add(0, RECEIVERS, rows)
    assert_same(product(x, y, w, **EDGES), expected)


def test_number_of_nodes_defaults_to_the_rows_of_the_first_tensor():
    product = TensorProduct(1, 1, 1, channels=2)
    assert product(normal(6, 4, 2), normal(5, 4), **EDGES).shape == (6, 8, 2)


def test_shared_weights_are_row_weights_repeated():
    product = TensorProduct(1, 2, 2, channels=3)
    x, y, w = normal(4, 4, 3), normal(5, 9), normal(product.n_paths, 3)
    repeated = w.expand(5, -1, -1)
    assert_same(product(x, y, w, **EDGES), product(x, y, repeated, **EDGES))
    assert_same(product(x, y[:4], w), product(x, y[:4], repeated[:4]))


def test_no_weights_are_unit_weights():
    product = TensorProduct(1, 2, 2, channels=3)
    x, y = normal(4, 4, 3), normal(5, 9)
    assert_same(product(x, y, **EDGES), product(x, y, torch.ones(5, product.n_paths, 3, dtype=x.dtype), **EDGES))


def test_second_tensor_without_channels_is_the_same_for_all_channels():
    product = TensorProduct(1, 1, 1, channels=3)
    x, y = normal(5, 4, 3), normal(5, 4)
    assert_same(product(x, y), product(x, y.unsqueeze(2).expand(-1, -1, 3)))


def test_second_tensor_may_have_channels_on_edges():
    product = TensorProduct(1, 1, 1, channels=3)
    x, y = normal(4, 4, 3), normal(5, 4)
    assert_same(product(x, y, **EDGES), product(x, y.unsqueeze(2).expand(-1, -1, 3), **EDGES))


def test_kept_paths_summed_by_rank_are_the_summed_product():
    kept, summed = TensorProduct(2, 2, 2, channels=2), TensorProduct(2, 2, 2, channels=2, sum_paths=True)
    x, y, w = normal(4, 9, 2), normal(4, 9, 2, seed=1), normal(4, kept.n_paths, 2)
    paths = kept(x, y, w)
    expected = paths.new_zeros(4, 9, 2)
    for path, start in zip(kept.paths, path_offsets(kept.paths), strict=False):
        expected[:, rank_slice(path.l_out)] += paths[:, start : start + 2 * path.l_out + 1]
    assert_same(summed(x, y, w), expected)


def test_symmetric_product_is_the_half_of_the_full_one():
    full, half = TensorProduct(2, 2, 2, channels=2), TensorProduct(2, 2, 2, channels=2, symmetric=True)
    x = normal(4, 9, 2)
    offsets = path_offsets(full.paths)
    kept = [full(x, x)[:, offsets[n] : offsets[n + 1]] for n, p in enumerate(full.paths) if p.l_first <= p.l_second]
    assert_same(half(x), torch.cat(kept, dim=1))
    assert half.n_paths < full.n_paths


def test_mirrored_paths_of_one_tensor_with_itself_are_equal():
    full = TensorProduct(2, 2, 2, channels=2)
    x = normal(4, 9, 2)
    out, offsets = full(x, x), path_offsets(full.paths)
    place = {(p.l_first, p.l_second, p.l_out): n for n, p in enumerate(full.paths)}
    for (l1, l2, l3), n in place.items():
        m = place[l2, l1, l3]
        torch.testing.assert_close(
            out[:, offsets[n] : offsets[n + 1]], out[:, offsets[m] : offsets[m + 1]], rtol=0, atol=1e-13
        )


def test_products_have_no_parameters():
    assert list(TensorProduct(1, 1, 1, channels=2).parameters()) == []


def test_wrong_calls_are_refused():
    product = TensorProduct(1, 1, 1, channels=2)
    with pytest.raises(ValueError, match="together"):
        product(normal(4, 4, 2), normal(5, 4), senders=SENDERS)
    with pytest.raises(ValueError, match="takes one tensor, any other two"):
        product(normal(4, 4, 2))
    with pytest.raises(ValueError, match="expected shape"):
        product(normal(4, 9, 2), normal(4, 4))


@pytest.mark.parametrize("arguments", [(-1, 1, 1, 2), (1, 1, 1, 0)])
def test_negative_ranks_and_no_channels_are_refused(arguments):
    with pytest.raises(UserError, match="ranks must be >= 0 and channels >= 1"):
        TensorProduct(*arguments)


def test_symmetric_products_of_two_sizes_are_refused():
    with pytest.raises(UserError, match="needs l_in == l_edge, got 1 and 2"):
        TensorProduct(1, 2, 1, channels=2, symmetric=True)


def test_explicit_triton_on_cpu_tensors_is_an_error():
    product = TensorProduct(1, 1, 1, channels=2, backend="triton")
    with pytest.raises(UserError, match="triton"):
        product(normal(4, 4, 2), normal(4, 4))
