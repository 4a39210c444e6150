"""Graphs of ASE structures, and several graphs joined."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.build import bulk, molecule

from flashcart.data.graph import atoms_to_graph, cell_volume, collate
from flashcart.errors import DataError


def test_species_index_the_given_elements() -> None:
    graph = atoms_to_graph(molecule("H2O"), ("H", "C", "O"), 3.0)
    np.testing.assert_array_equal(graph.species, [2, 0, 0])
    assert graph.edge_vectors.dtype == torch.float64
    assert graph.senders.dtype == graph.receivers.dtype == graph.species.dtype == graph.batch.dtype == torch.int64


def test_edge_vectors_end_at_the_sender() -> None:
    atoms = molecule("CH3CH2OH")
    graph = atoms_to_graph(atoms, ("H", "C", "O"), 3.0)
    positions = torch.from_numpy(atoms.positions)
    assert torch.equal(graph.edge_vectors, positions[graph.senders] - positions[graph.receivers])


def test_joined_graphs_are_the_separate_ones_with_shifted_numbers() -> None:
    graphs = [atoms_to_graph(atoms, ("H", "O", "Cu"), 4.0) for atoms in (molecule("H2O"), Atoms("H"), bulk("Cu"))]
    joined = collate(graphs)
    assert joined.n_structures == 3
    assert joined.batch.tolist() == [0, 0, 0, 1, 2]
    assert joined.species.tolist() == [1, 0, 0, 0, 2]
    n_edges = [len(graph.senders) for graph in graphs]
    assert n_edges[1] == 0
    assert torch.equal(joined.senders[n_edges[0] :], graphs[2].senders + 4)
    assert torch.equal(joined.receivers[n_edges[0] :], graphs[2].receivers + 4)
    assert (joined.receivers.diff() >= 0).all()
    assert joined.volumes.tolist() == [0.0, 0.0, bulk("Cu").get_volume()]


def test_volume_is_absolute_and_only_there_in_three_periodic_directions() -> None:
    cell = np.array([[0.0, 3, 0], [3, 0, 0], [0, 0, 3]])
    assert cell_volume(cell, [True] * 3) == pytest.approx(27.0)
    assert cell_volume(cell, [True, True, False]) == 0.0
    assert cell_volume(np.diag([3.0, 3.0, 0.0]), [True] * 3) == 0.0


def test_an_element_the_model_lacks_is_named() -> None:
    with pytest.raises(DataError, match="the element O is not among the model's elements H, C"):
        atoms_to_graph(molecule("H2O"), ("H", "C"), 3.0)


@pytest.mark.parametrize(
    ("elements", "sentence"), [(("H", "Qq"), "'Qq' is not the symbol"), (("H", "H"), "H stands twice")]
)
def test_unknown_and_repeated_symbols_are_named(elements: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        atoms_to_graph(Atoms("H"), elements, 3.0)


def test_a_graph_moves_between_devices_whole() -> None:
    moved = atoms_to_graph(molecule("H2O"), ("H", "O"), 3.0).to("meta")
    assert moved.edge_vectors.device == moved.batch.device == moved.volumes.device == torch.device("meta")
    assert moved.n_structures == 1
