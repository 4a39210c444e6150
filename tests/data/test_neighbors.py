"""The neighbour list against ASE's own, in every geometry that has tripped others."""

from __future__ import annotations

import time

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111, molecule
from ase.neighborlist import primitive_neighbor_list

from flashcart.data.neighbors import neighbor_list
from flashcart.errors import DataError


def _random_crystal(n_atoms: int, cell: list[list[float]], pbc: tuple[int, int, int] = (1, 1, 1)) -> Atoms:
    rng = np.random.default_rng(7)
    return Atoms(f"H{n_atoms}", scaled_positions=rng.random((n_atoms, 3)), cell=cell, pbc=pbc)


def _slab_without_third_vector() -> Atoms:
    slab = fcc111("Cu", (2, 2, 3), periodic=False)
    slab.rattle(0.05, seed=1)
    slab.set_cell([slab.cell[0], slab.cell[1], [0, 0, 0]])
    slab.pbc = (True, True, False)
    return slab


def _outside_the_cell() -> Atoms:
    atoms = _random_crystal(5, [[4, 0, 0], [0, 5, 0], [0, 0, 6]])
    atoms.positions += np.array([[9, -13, 0], [0, 0, 0], [-30, 4, 2], [0, 101, 0], [1, 1, -7]])
    return atoms


STRUCTURES = {
    "triclinic cell smaller than the cutoff": _random_crystal(3, [[2.5, 0, 0], [0.9, 2.4, 0], [0.4, -0.7, 2.6]]),
    "strongly sheared cell": _random_crystal(4, [[3, 0, 0], [8, 3, 0], [5, -7, 3]]),
    "left-handed cell": _random_crystal(4, [[0, 4, 0], [4, 1, 0], [0, 0, 5]]),
    "slab with a zero third vector": _slab_without_third_vector(),
    "slab with a tilted third vector": _random_crystal(6, [[4, 0, 0], [1, 4, 0], [3, 2, 9]], (1, 1, 0)),
    "slab whose middle direction is open": _random_crystal(6, [[4, 0, 0], [1, 4, 0], [3, 2, 9]], (1, 0, 1)),
    "wire": _random_crystal(5, [[3, 0, 0], [0, 8, 0], [0, 0, 8]], (1, 0, 0)),
    "molecule without a cell": molecule("CH3CH2OH"),
    "molecule in a cell that is not periodic": _random_crystal(6, [[4, 0, 0], [0, 4, 0], [0, 0, 4]], (0, 0, 0)),
    "atoms outside the cell": _outside_the_cell(),
    "one atom in a small cell": Atoms("Cu", cell=[[0, 1.8, 1.8], [1.8, 0, 1.8], [1.8, 1.8, 0]], pbc=True),
}


def _sorted_edges(i: np.ndarray, j: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    table = np.column_stack([i, j, shifts]).astype(np.int64)
    return table[np.lexsort(table.T[::-1])]


@pytest.mark.parametrize("name", STRUCTURES)
def test_edges_are_those_of_ase(name: str) -> None:
    atoms = STRUCTURES[name]
    i, j, shifts, vectors = primitive_neighbor_list("ijSD", atoms.pbc, atoms.cell.array, atoms.positions, 5.0)
    edges = neighbor_list(atoms.positions, atoms.cell.array, atoms.pbc, 5.0)
    assert len(edges.receivers) > 0
    np.testing.assert_array_equal(
        _sorted_edges(edges.receivers, edges.senders, edges.shifts), _sorted_edges(i, j, shifts)
    )
    order = np.lexsort((*shifts.T[::-1], j, i))
    # Rounding of positions up to 100 Å: a few ulp.
    np.testing.assert_allclose(edges.vectors, vectors[order], atol=1e-13 * max(1.0, np.abs(atoms.positions).max()))


@pytest.mark.parametrize("name", STRUCTURES)
def test_edges_are_sorted_by_receiver_and_come_in_both_directions(name: str) -> None:
    atoms = STRUCTURES[name]
    edges = neighbor_list(atoms.positions, atoms.cell.array, atoms.pbc, 5.0)
    assert (np.diff(edges.receivers) >= 0).all()
    there = {(*row,) for row in np.column_stack([edges.receivers, edges.senders, edges.shifts]).tolist()}
    assert there == {(j, i, -a, -b, -c) for i, j, a, b, c in there}


def test_vectors_point_from_receiver_to_the_image_of_the_sender() -> None:
    edges = neighbor_list([[0.5, 0, 0], [9.5, 0, 0]], np.eye(3) * 10, [True] * 3, 2.0)
    np.testing.assert_array_equal(edges.receivers, [0, 1])
    np.testing.assert_array_equal(edges.senders, [1, 0])
    np.testing.assert_array_equal(edges.shifts, [[-1, 0, 0], [1, 0, 0]])
    np.testing.assert_array_equal(edges.vectors, [[-1.0, 0, 0], [1.0, 0, 0]])


def test_an_edge_as_long_as_the_cutoff_is_left_out() -> None:
    positions = [[0.0, 0, 0], [2.0, 0, 0]]
    assert len(neighbor_list(positions, np.zeros((3, 3)), [False] * 3, 2.0).receivers) == 0
    assert len(neighbor_list(positions, np.zeros((3, 3)), [False] * 3, np.nextafter(2.0, 3.0)).receivers) == 2


@pytest.mark.parametrize("n_atoms", [0, 1, 2])
def test_a_structure_without_edges_gives_empty_arrays(n_atoms: int) -> None:
    positions = np.arange(3 * n_atoms, dtype=float).reshape(n_atoms, 3) * 10
    edges = neighbor_list(positions, np.zeros((3, 3)), [False] * 3, 5.0)
    assert edges.receivers.shape == edges.senders.shape == (0,)
    assert edges.shifts.shape == edges.vectors.shape == (0, 3)
    assert edges.vectors.dtype == np.float64


def test_two_atoms_in_one_place_are_an_edge_of_length_zero() -> None:
    edges = neighbor_list(np.zeros((2, 3)), np.zeros((3, 3)), [False] * 3, 5.0)
    np.testing.assert_array_equal(edges.vectors, np.zeros((2, 3)))


@pytest.mark.parametrize("cell", [np.diag([4.0, 4.0, 0.0]), [[4.0, 0, 0], [8.0, 0, 0], [0, 0, 4.0]]])
def test_a_periodic_direction_without_length_of_its_own_is_an_error(cell: np.ndarray) -> None:
    with pytest.raises(DataError, match="has no volume along its periodic directions"):
        neighbor_list(np.zeros((1, 3)), cell, [True] * 3, 5.0)


def test_500_silicon_atoms_take_under_10_ms() -> None:
    atoms = bulk("Si", cubic=True).repeat((4, 4, 4))
    atoms.rattle(0.1, seed=0)
    best = 1.0
    for _ in range(20):
        start = time.perf_counter()
        edges = neighbor_list(atoms.positions, atoms.cell.array, atoms.pbc, 5.0)
        best = min(best, time.perf_counter() - start)
    assert len(edges.receivers) > 512 * 20
    assert best < 0.010
