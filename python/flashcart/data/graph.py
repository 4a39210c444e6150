"""From an ASE structure to the graph that the model sees, and several graphs into one.

Takes `ase.Atoms`, returns `AtomicGraph`. Labels are no concern of this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from flashcart.data.neighbors import neighbor_list
from flashcart.errors import DataError
from flashcart.potential import AtomicGraph

if TYPE_CHECKING:
    import ase


def atoms_to_graph(atoms: ase.Atoms, elements: Sequence[str], r_max: float) -> AtomicGraph:
    """Return the graph of one structure, edges strictly shorter than `r_max` (Å).

    Raises DataError for an atom whose element is not among `elements`, and for a periodic cell without volume.
    """
    edges = neighbor_list(atoms.positions, atoms.cell.array, atoms.pbc, r_max)
    return AtomicGraph(
        edge_vectors=torch.from_numpy(edges.vectors),
        senders=torch.from_numpy(edges.senders),
        receivers=torch.from_numpy(edges.receivers),
        species=torch.from_numpy(species_of(atoms.numbers, elements)),
        batch=torch.zeros(len(atoms), dtype=torch.int64),
        n_structures=1,
        volumes=torch.tensor([cell_volume(atoms.cell.array, atoms.pbc)], dtype=torch.float64),
    )


def collate(graphs: Sequence[AtomicGraph]) -> AtomicGraph:
    """Join graphs into one; atoms, edges and structures keep their order."""
    atom_offsets = np.cumsum([0] + [len(graph.species) for graph in graphs])
    structure_offsets = np.cumsum([0] + [graph.n_structures for graph in graphs])
    shifted = zip(graphs, atom_offsets.tolist(), structure_offsets.tolist(), strict=False)
    senders, receivers, batch = zip(
        *((graph.senders + atom, graph.receivers + atom, graph.batch + first) for graph, atom, first in shifted),
        strict=True,
    )
    return AtomicGraph(
        edge_vectors=torch.cat([graph.edge_vectors for graph in graphs]),
        senders=torch.cat(senders),
        receivers=torch.cat(receivers),
        species=torch.cat([graph.species for graph in graphs]),
        batch=torch.cat(batch),
        n_structures=int(structure_offsets[-1]),
        volumes=torch.cat([graph.volumes for graph in graphs]),
    )


def cell_volume(cell: npt.ArrayLike, pbc: npt.ArrayLike) -> float:
    """Return the volume (Å^3) of a cell that is periodic in all three directions, and 0 otherwise.

    Stress is defined where this is not 0. The handedness of the cell does not matter.
    """
    return abs(float(np.linalg.det(np.asarray(cell, dtype=np.float64)))) if np.all(pbc) else 0.0


def species_of(numbers: npt.ArrayLike, elements: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the index in `elements` of each atomic number; raise DataError for one that is not there."""
    atomic_numbers = np.asarray(numbers, dtype=np.int64)
    table = _species_table(tuple(elements))
    species = table[np.clip(atomic_numbers, 0, len(table) - 1)]
    if species.size and species.min() < 0:
        from ase.data import chemical_symbols

        symbol = chemical_symbols[atomic_numbers[np.argmin(species)]]
        raise DataError(f"the element {symbol} is not among the model's elements {', '.join(elements)}.")
    return species


@lru_cache(maxsize=16)
def _species_table(elements: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return the index of every atomic number, -1 where it is not among `elements`; checks the symbols."""
    from ase.data import atomic_numbers

    table = np.full(len(atomic_numbers), -1, dtype=np.int64)
    for index, symbol in enumerate(elements):
        number = atomic_numbers.get(symbol, 0)
        if number == 0:
            raise DataError(f"elements: {symbol!r} is not the symbol of an element.")
        if table[number] >= 0:
            raise DataError(f"elements: {symbol} stands twice in {', '.join(elements)}.")
        table[number] = index
    table.setflags(write=False)
    return table
