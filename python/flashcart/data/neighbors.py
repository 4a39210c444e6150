"""Neighbour list of one structure.

Takes positions, a cell and its periodic directions, returns every directed edge shorter than the cutoff. Knows nothing
of elements or labels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import vesin

from flashcart.errors import DataError


class NeighborList(NamedTuple):
    """Directed edges, ordered by receiver, then sender, then shift; both directions of a pair are there.

    receivers, senders: [n_edges] int64. shifts: [n_edges, 3] int64, whole cell vectors S.
    vectors: [n_edges, 3] float64, Å, position of the sender's image minus that of the receiver, x_j - x_i + S.cell.
    """

    receivers: npt.NDArray[np.int64]
    senders: npt.NDArray[np.int64]
    shifts: npt.NDArray[np.int64]
    vectors: npt.NDArray[np.float64]


def neighbor_list(positions: npt.ArrayLike, cell: npt.ArrayLike, pbc: npt.ArrayLike, r_max: float) -> NeighborList:
    """Return the edges strictly shorter than `r_max` (Å).

    positions: [n_atoms, 3], Å, inside the cell or not. cell: [3, 3], Å, rows are the cell vectors, of either
    handedness, zero where there is none. pbc: [3], the periodic directions. Raises DataError where the periodic cell
    vectors do not span a space of their number.
    """
    points = np.array(positions, dtype=np.float64).reshape(-1, 3)
    vectors = np.array(cell, dtype=np.float64)
    periodic = np.array(pbc, dtype=bool)
    # The list is made with a slightly larger cutoff, so that the last word on the border is the comparison below.
    finder = vesin.NeighborList(cutoff=r_max * (1 + 1e-9), full_list=True, n_threads=1)
    found = finder.compute(points, _complete_cell(vectors, periodic), periodic, quantities="ijS")
    receivers, senders, shifts = (np.asarray(part).astype(np.int64) for part in found)
    edge_vectors = points[senders] - points[receivers] + shifts @ np.where(periodic[:, None], vectors, 0.0)
    order = _edge_order(receivers, senders, shifts, len(points))
    order = order[np.einsum("ex,ex->e", edge_vectors, edge_vectors)[order] < r_max * r_max]
    return NeighborList(receivers[order], senders[order], shifts[order], edge_vectors[order])


def _complete_cell(cell: npt.NDArray[np.float64], periodic: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Replace the cell vectors of directions that are not periodic, which mean nothing, by orthogonal unit vectors."""
    rows = cell[periodic]
    lengths = np.linalg.norm(rows, axis=1)
    if len(rows) == 0:
        return np.eye(3)
    if lengths.min() == 0.0 or np.linalg.svd(rows / lengths[:, None], compute_uv=False).min() < 1e-8:
        raise DataError(
            f"the cell {cell.tolist()} has no volume along its periodic directions (pbc {periodic.tolist()})."
        )
    completed = cell.copy()
    completed[~periodic] = np.linalg.svd(rows)[2][len(rows) :]
    return completed


def _edge_order(
    receivers: npt.NDArray[np.int64], senders: npt.NDArray[np.int64], shifts: npt.NDArray[np.int64], n_atoms: int
) -> npt.NDArray[np.int64]:
    """Return the permutation by receiver, sender and shift, so that the order does not depend on vesin's algorithm."""
    if len(receivers) == 0:
        return np.zeros(0, dtype=np.int64)
    lowest = shifts.min(axis=0)
    extent = [int(size) for size in shifts.max(axis=0) - lowest + 1]
    if n_atoms * n_atoms * extent[0] * extent[1] * extent[2] >= 2**62:
        return np.asarray(np.lexsort((*shifts.T[::-1], senders, receivers)), dtype=np.int64)
    number = receivers * n_atoms + senders
    for axis in range(3):
        number = number * extent[axis] + (shifts[:, axis] - lowest[axis])
    return np.argsort(number, kind="stable")
