"""Structures of every kind, and small models with random weights, for tests of physics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from ase import Atoms

from flashcart.data.graph import atoms_to_graph, collate
from flashcart.model import FlashCart, ModelConfig
from flashcart.potential import AtomicGraph, Prediction, predict

ELEMENTS = ("H", "O")
OFFSETS = {"H": -13.5, "O": -430.25}  # eV
SCALES = {"H": 0.8, "O": 1.7}  # eV

CONFIG = ModelConfig(
    elements=ELEMENTS,
    r_max=4.0,
    n_hidden_feats=4,
    l_max_hidden_feats=1,
    l_max_edge_attrs=2,
    n_interactions=2,
    correlation=2,
    hidden_radial=(8,),
    hidden_readout=(8,),
)


def make_model(dtype: torch.dtype = torch.float64, **changes: Any) -> FlashCart:
    """A model in evaluation mode whose parameters are all random: zero starts would hide whole branches."""
    model = FlashCart(replace(CONFIG, **changes), seed=7, dtype=dtype)
    generator = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():
        if "matri" not in name or not parameter.abs().max() > 0:
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(dtype)
            parameter.data += 0.3 * noise
    numbers = [torch.tensor([values[e] for e in model.config.elements]) for values in (OFFSETS, SCALES)]
    model.set_statistics(offsets=numbers[0], scales=numbers[1], average_neighbors=12.0)
    return model.eval()


def molecule() -> Atoms:
    """A small cluster of H and O without symmetry."""
    positions = [[0, 0, 0], [0.95, 0.1, 0], [-0.3, 0.9, 0.2], [1.6, 1.3, 0.9], [2.4, 1.0, 1.5], [0.2, -0.4, 2.1]]
    return Atoms("OHHOHH", positions=positions)


def crystal() -> Atoms:
    """Three atoms in a triclinic cell with edges shorter than the cutoff: atoms see their own images."""
    cell = [[2.6, 0.2, -0.1], [0.5, 2.8, 0.3], [-0.4, 0.6, 3.1]]
    return Atoms("OHO", scaled_positions=[[0.1, 0.1, 0.1], [0.55, 0.4, 0.6], [0.8, 0.9, 0.35]], cell=cell, pbc=True)


def slab() -> Atoms:
    """Periodic in two directions; the third cell vector is there but is none of the lattice."""
    cell = [[3.3, 0, 0], [0.4, 3.1, 0], [0, 0, 12.0]]
    positions = [[0, 0, 5.0], [1.5, 1.4, 5.6], [0.4, 1.9, 6.9], [1.9, 0.2, 7.3]]
    return Atoms("OHHO", positions=positions, cell=cell, pbc=[True, True, False])


def isolated_atom() -> Atoms:
    """One O atom."""
    return Atoms("O", positions=[[0.3, 0.2, 0.1]])


def edgeless() -> Atoms:
    """Atoms too far apart to see each other."""
    return Atoms("HOH", positions=[[0, 0, 0], [20, 0, 0], [0, 30, 0]])


STRUCTURES = {
    "molecule": molecule,
    "triclinic crystal": crystal,
    "slab": slab,
    "isolated atom": isolated_atom,
    "edgeless": edgeless,
}
BONDED = ("molecule", "triclinic crystal", "slab")


def graph_of(*structures: Atoms, model: FlashCart) -> AtomicGraph:
    """One graph of all structures."""
    return collate([atoms_to_graph(atoms, model.config.elements, model.config.r_max) for atoms in structures])


def evaluate(model: FlashCart, *structures: Atoms, training: bool = False) -> Prediction:
    """Prediction for the structures as one batch."""
    return predict(model, graph_of(*structures, model=model), training=training)


def energy(model: FlashCart, atoms: Atoms) -> float:
    """Total energy, eV."""
    with torch.no_grad():
        graph = graph_of(atoms, model=model)
        return float(model(graph.edge_vectors, graph.senders, graph.receivers, graph.species).sum())


def turned(atoms: Atoms, matrix: np.ndarray) -> Atoms:
    """Rotated or reflected, cell included."""
    result = atoms.copy()
    result.positions = atoms.positions @ matrix.T
    result.cell = atoms.cell.array @ matrix.T
    return result


def strained(atoms: Atoms, strain: np.ndarray) -> Atoms:
    """Positions and cell times (1 + strain)."""
    result = atoms.copy()
    result.positions = atoms.positions @ (np.eye(3) + strain)
    result.cell = atoms.cell.array @ (np.eye(3) + strain)
    return result
