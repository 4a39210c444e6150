"""One message-passing layer: equivariance, sums over edges, ghosts, what it exchanges."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from flashcart.cartesian import rotate
from flashcart.nn import CartesianExpansion
from flashcart.nn.message import Edges, Interaction, InteractionShape, add_ranks, first_ranks

from ..rotations import assert_same, every_orthogonal_matrix, normal

SHAPE = InteractionShape(l_in=1, l_edge=2, l_out=2, channels=3, n_functions=4, hidden=(5,))
AVERAGE = torch.tensor(2.5, dtype=torch.float64)


def interaction(*, layer_norm=True, gate=("sigmoid", True)) -> Interaction:
    torch.manual_seed(0)
    made = Interaction(SHAPE, layer_norm=layer_norm, gate=gate).double()
    for parameter in made.parameters():
        parameter.data.normal_()
    return made


def edges(vectors: torch.Tensor) -> Edges:
    senders, receivers = torch.tensor([1, 2, 0, 3, 0]), torch.tensor([0, 0, 1, 2, 2])
    return Edges(senders, receivers, CartesianExpansion(2)(vectors), normal(5, 4, seed=9), n_nodes=4, n_owned=4)


@every_orthogonal_matrix
@pytest.mark.parametrize("gate", [None, ("sigmoid", True), ("silu", False)])
def test_interaction_is_equivariant(gate, matrix):
    layer, x, vectors = interaction(gate=gate), normal(4, 4, 3), normal(5, 3)
    turned = layer(rotate(x, matrix), edges(vectors @ matrix.T), AVERAGE, None)
    assert_same(turned, rotate(layer(x, edges(vectors), AVERAGE, None), matrix))


def test_messages_are_divided_by_the_root_of_the_average_number_of_neighbors():
    layer, x, e = interaction(layer_norm=False, gate=None), normal(4, 4, 3), edges(normal(5, 3))
    with_two, with_eight = (layer(x, e, torch.tensor(n, dtype=torch.float64), None) for n in (2.0, 8.0))
    residual = add_ranks(torch.zeros_like(with_two), x)
    assert_same(with_two - residual, 2 * (with_eight - residual))


def test_nodes_without_edges_keep_their_features():
    layer, x, e = interaction(layer_norm=False, gate=None), normal(4, 4, 3), edges(normal(5, 3))
    out = layer(x, e, AVERAGE, None)
    assert torch.equal(out[3, :4], x[3])  # node 3 receives nothing
    assert torch.all(out[3, 4:] == 0)
    assert not torch.allclose(out[0, :4], x[0])


def test_ghosts_send_but_do_not_receive():
    layer, x, e = interaction(), normal(4, 4, 3), edges(normal(5, 3))
    full = layer(x, e, AVERAGE, None)
    part = layer(x[:3], replace(e, n_owned=3), AVERAGE, lambda sent: torch.cat([sent, layer.linear(x[3:])]))
    assert_same(part, full[:3])


def test_exchange_gets_one_row_per_owned_node_of_the_input_ranks():
    shapes = []

    def exchange(sent: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(sent.shape))
        return torch.cat([sent, sent.new_zeros(1, *sent.shape[1:])])

    interaction()(normal(3, 4, 3), replace(edges(normal(5, 3)), n_owned=3), AVERAGE, exchange)
    assert shapes == [(3, 4, 3)]


def test_ranks_are_added_where_both_have_them():
    small, large = normal(2, 4, 3), normal(2, 9, 3, seed=1)
    assert torch.equal(add_ranks(small, large), small + large[:, :4])
    assert torch.equal(add_ranks(large, small), torch.cat([large[:, :4] + small, large[:, 4:]], dim=1))
    assert torch.equal(first_ranks(large, 1), large[:, :4])
