"""The ASE calculator: energy, forces and stress of `ase.Atoms` from one model evaluation per geometry."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

from flashcart.data.graph import cell_volume, species_of
from flashcart.data.neighbors import NeighborList, neighbor_list
from flashcart.deploy import load_model
from flashcart.errors import UserError
from flashcart.model_kernels import prepare_kernels
from flashcart.potential import AtomicGraph, Prediction, hessian, predict

# Places of ASE's xx yy zz yz xz xy in a 3x3 matrix, and in LAMMPS's xx yy zz xy xz yz.
_VOIGT = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))
_FROM_LAMMPS = [0, 1, 2, 5, 4, 3]


class FlashCartCalculator(Calculator):
    """Energies in eV, forces in eV/Å, stress in eV/Å^3 (ASE's sign and order).

    Args:
        model: a file written by `flashcart-train`.
        device: auto, cpu, gpu, cuda, cuda:N.
        dtype: float64, float32, or trained for the dtype of the file.
        skin: Å; above 0 the neighbour list reaches this much further and is kept until an atom has moved half of it.
        **kwargs: passed on to ASE's `Calculator`.

    Raises:
        ModelFileError: the model file cannot be used.
        UserError: unknown device or dtype, negative skin.
    """

    implemented_properties: ClassVar[list[str]] = ["energy", "free_energy", "energies", "forces", "stress", "stresses"]

    def __init__(
        self, model: str | Path, device: str = "cpu", dtype: str = "float64", skin: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if not skin >= 0:
            raise UserError(f"skin={skin}: must be at least 0 Å.")
        self.model = load_model(model, device=device, dtype=dtype)
        prepare_kernels(self.model, "inference")
        self.skin = float(skin)
        self.n_evaluations = 0
        self._list: tuple[Atoms, NeighborList] | None = None

    @property
    def elements(self) -> tuple[str, ...]:
        """Element symbols that the model knows."""
        return self.model.config.elements

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        """Evaluate the model once and keep everything it gives.

        Raises:
            UserError: two atoms stand in one place.
            DataError: an element that the model does not know, or a periodic cell without volume.
        """
        super().calculate(atoms, properties, system_changes)
        prediction = predict(self.model, self.graph(self.atoms))
        self.n_evaluations += 1
        self.results = _results(prediction)

    def graph(self, atoms: Atoms) -> AtomicGraph:
        """The graph of a structure on the model's device."""
        r_max = self.model.config.r_max
        pairs = self._neighbors(atoms, r_max + self.skin)
        vectors = pairs.vectors
        senders, receivers = pairs.senders, pairs.receivers
        if self.skin:
            cell = np.where(atoms.pbc[:, None], atoms.cell.array, 0.0)
            vectors = atoms.positions[senders] - atoms.positions[receivers] + pairs.shifts @ cell
            near = np.einsum("ex,ex->e", vectors, vectors) < r_max**2
            vectors, senders, receivers = vectors[near], senders[near], receivers[near]
        distances = np.linalg.norm(vectors, axis=1)
        if len(distances) and distances.min() < 1e-6:
            edge = int(distances.argmin())
            raise UserError(f"atoms {receivers[edge]} and {senders[edge]} stand in one place.")
        graph = AtomicGraph(
            edge_vectors=torch.from_numpy(vectors),
            senders=torch.from_numpy(senders),
            receivers=torch.from_numpy(receivers),
            species=torch.from_numpy(species_of(atoms.numbers, self.elements)),
            batch=torch.zeros(len(atoms), dtype=torch.int64),
            n_structures=1,
            volumes=torch.tensor([cell_volume(atoms.cell.array, atoms.pbc)], dtype=torch.float64),
        )
        return graph.to(self.model.embedding.device)

    def _neighbors(self, atoms: Atoms, reach: float) -> NeighborList:
        if self._list is not None and self.skin:
            reference, pairs = self._list
            same = (
                len(reference) == len(atoms)
                and np.array_equal(reference.cell.array, atoms.cell.array)
                and np.array_equal(reference.pbc, atoms.pbc)
            )
            if (
                same
                and np.max(np.linalg.norm(atoms.positions - reference.positions, axis=1), initial=0.0) < self.skin / 2
            ):
                return pairs
        pairs = neighbor_list(atoms.positions, atoms.cell.array, atoms.pbc, reach)
        self._list = (atoms.copy(), pairs)
        return pairs

    def get_descriptors(self, atoms: Atoms | None = None) -> npt.NDArray[np.float64]:
        """Invariant features of every atom: the scalars of all layers, [n_atoms, n_interactions * n_hidden_feats]."""
        graph = self.graph(self._structure(atoms))
        with torch.no_grad():
            values = self.model.descriptors(graph.edge_vectors, graph.senders, graph.receivers, graph.species)
        return values.double().cpu().numpy()

    def get_hessian(self, atoms: Atoms | None = None) -> npt.NDArray[np.float64]:
        """Second derivatives of the energy, [3 n_atoms, 3 n_atoms], eV/Å^2."""
        return hessian(self.model, self.graph(self._structure(atoms))).double().cpu().numpy()

    def _structure(self, atoms: Atoms | None) -> Atoms:
        chosen = self.atoms if atoms is None else atoms
        if chosen is None:
            raise UserError("no structure: pass atoms, or attach the calculator to some and evaluate it once.")
        return chosen


def _results(prediction: Prediction) -> dict[str, Any]:
    energy = float(prediction.energy[0])
    results: dict[str, Any] = {
        "energy": energy,
        "free_energy": energy,
        "energies": prediction.site_energies.cpu().numpy(),
        "forces": prediction.forces.double().cpu().numpy(),
    }
    volume = float(prediction.graph.volumes[0])
    if volume > 0:
        stress = prediction.stress[0].double().cpu().numpy()
        results["stress"] = np.array([stress[place] for place in _VOIGT])
        results["stresses"] = -prediction.atom_virials().double().cpu().numpy()[:, _FROM_LAMMPS] / volume
    return results
