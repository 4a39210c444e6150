"""Edges grouped by receiver: every edge in exactly one place, remembered per neighbour list."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from flashcart.ops.edge_layout import edge_layout

from ..programs import random_graph

DEGREES = [0, 40, 1, 7, 0, 13, 39, 2, 2, 25]


@pytest.mark.parametrize("size", [1, 16, 10_000])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("degrees", [DEGREES, [5, 5, 5], [0, 0], [1]], ids=["uneven", "even", "none", "one"])
def test_every_edge_has_one_place_with_its_receiver(degrees, shuffled, size):
    graph = random_graph(degrees, shuffled=shuffled)
    receivers = torch.from_numpy(graph.receivers)
    seen = []
    for group in edge_layout(receivers, graph.n_nodes).groups(size):
        edges = group.take(torch.arange(graph.n_edges), 0).view(group.n_receivers, group.degree)
        real = torch.ones_like(edges, dtype=torch.bool) if group.real is None else group.real.view_as(edges)
        owners = group.receivers.unsqueeze(1).expand_as(edges)
        assert torch.equal(receivers[edges[real]], owners[real])
        seen.append(edges[real])
    assert sorted(torch.cat(seen).tolist() if seen else []) == list(range(graph.n_edges))


def test_values_put_back_come_where_they_were_taken():
    graph = random_graph(DEGREES, shuffled=True)
    values, back = torch.randn(graph.n_edges, 3), torch.zeros(graph.n_edges, 3)
    for group in edge_layout(torch.from_numpy(graph.receivers), graph.n_nodes).groups(64):
        group.put(back, group.take(values, 0), 0)
    assert torch.equal(back, values)


def test_layout_is_remembered_while_the_receivers_stay_as_they_are():
    receivers = torch.from_numpy(random_graph(DEGREES).receivers.copy())
    first = edge_layout(receivers, 10)
    assert edge_layout(receivers, 10) is first
    assert edge_layout(receivers, 11) is not first
    again = edge_layout(receivers, 10)
    receivers.add_(0)
    assert edge_layout(receivers, 10) is not again
    assert edge_layout(receivers.clone(), 10) is not again


def test_layout_is_forgotten_with_its_receivers():
    receivers = torch.from_numpy(random_graph(DEGREES).receivers.copy())
    layout = weakref.ref(edge_layout(receivers, 10))
    assert layout() is not None
    del receivers
    gc.collect()
    assert layout() is None
