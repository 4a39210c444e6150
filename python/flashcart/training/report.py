"""What flashcart-test writes for one data set: errors per structure, predictions, parity plots.

Takes predictions batch by batch, writes <set>_structures.csv, <set>_predictions.extxyz and, where matplotlib is
installed, <set>_parity.png. Computes no metrics of the whole set (`metrics.py` does).
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path

import ase
import ase.io
import numpy as np
import numpy.typing as npt
import torch

from flashcart.data.batching import LabelledBatch
from flashcart.data.dataset import Dataset, Sample
from flashcart.data.graph import species_of
from flashcart.deploy import write_atomic
from flashcart.potential import Prediction
from flashcart.training.run_log import logger

Array = npt.NDArray[np.float64]

_STRUCTURE_COLUMNS = (
    "frame",
    "n_atoms",
    "energy_reference[eV]",
    "energy_predicted[eV]",
    "energy_error[eV/atom]",
    "forces_rmse[eV/Å]",
    "forces_maxe[eV/Å]",
    "stress_rmse[eV/Å^3]",
)


@dataclass(frozen=True)
class Predicted:
    """Predictions for one structure: energy eV, forces [n_atoms, 3] eV/Å, stress [3, 3] eV/Å^3 (NaN: no volume)."""

    energy: float
    forces: Array
    stress: Array


@dataclass(frozen=True)
class Report:
    """A data set and the predictions for its structures, which come in its order."""

    dataset: Dataset
    predictions: list[Predicted] = field(default_factory=list)

    def add(self, prediction: Prediction, batch: LabelledBatch) -> None:
        """Add the predictions for a batch."""
        forces = prediction.forces.double().cpu().split(batch.n_atoms.tolist())
        stress = prediction.stress.double().cpu()
        for number, energy in enumerate(prediction.energy.tolist()):
            self.predictions.append(Predicted(energy, forces[number].numpy(), stress[number].numpy()))

    def pairs(self) -> list[tuple[Sample, Predicted]]:
        """Return each structure with its prediction."""
        return list(zip(self.dataset.samples, self.predictions, strict=True))


def write_report(folder: Path, name: str, report: Report, offsets: torch.Tensor) -> None:
    """Write the files of the set `name`. offsets: [n_elements], eV, subtracted from energies in the plot."""
    write_atomic(folder / f"{name}_structures.csv", _structures_csv(report).encode())
    stream = io.StringIO()
    ase.io.write(stream, [_atoms(*pair) for pair in report.pairs()], format="extxyz")
    write_atomic(folder / f"{name}_predictions.extxyz", stream.getvalue().encode())
    _plot(folder / f"{name}_parity.png", report, offsets.numpy())


def _structures_csv(report: Report) -> str:
    """Return a line per structure: energies and errors; empty where there is no label."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(_STRUCTURE_COLUMNS)
    for sample, predicted in report.pairs():
        error = (predicted.energy - sample.energy) / sample.n_atoms
        row: list[object] = [sample.frame, sample.n_atoms, sample.energy, predicted.energy, error]
        if sample.forces is None:
            row += ["", ""]
        else:
            force_errors = predicted.forces - sample.forces
            row += [np.sqrt(np.mean(force_errors**2)), np.abs(force_errors).max()]
        row.append("" if sample.stress is None else np.sqrt(np.mean((predicted.stress - sample.stress) ** 2)))
        writer.writerow(row)
    return stream.getvalue()


def _atoms(sample: Sample, predicted: Predicted) -> ase.Atoms:
    """Return the structure with labels under REF_ and predictions under flashcart_ keys."""
    atoms = ase.Atoms(sample.numbers, sample.positions, cell=sample.cell, pbc=sample.pbc)
    atoms.info |= {"frame": sample.frame, "REF_energy": sample.energy, "flashcart_energy": predicted.energy}
    atoms.arrays["flashcart_forces"] = predicted.forces
    if sample.forces is not None:
        atoms.arrays["REF_forces"] = sample.forces
    if sample.volume > 0.0:
        atoms.info["flashcart_stress"] = predicted.stress
    if sample.stress is not None:
        atoms.info["REF_stress"] = sample.stress
    return atoms


def _plot(path: Path, report: Report, offsets: Array) -> None:
    """Draw predicted over reference values of what has labels; say so where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.info("no parity plots: matplotlib is not installed (pip install matplotlib).")
        return
    panels = _panels(report, offsets)
    figure = Figure(figsize=(4.2 * len(panels), 4.0), layout="constrained")
    for number, (title, (reference, predicted)) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), number)
        axes.plot(reference, predicted, ".", markersize=3, alpha=0.5, rasterized=True)
        limits = [min(reference.min(), predicted.min()), max(reference.max(), predicted.max())]
        axes.plot(limits, limits, "k-", linewidth=0.6)
        axes.set(title=title, xlabel="reference", ylabel="predicted")
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    write_atomic(path, stream.getvalue())


def _panels(report: Report, offsets: Array) -> dict[str, tuple[Array, Array]]:
    """Return title -> (reference, predicted) for each property that has labels."""
    elements, pairs = report.dataset.elements, report.pairs()
    free = [offsets[species_of(sample.numbers, elements)].sum() for sample, _ in pairs]
    energies = [
        ((sample.energy - zero) / sample.n_atoms, (predicted.energy - zero) / sample.n_atoms)
        for (sample, predicted), zero in zip(pairs, free, strict=True)
    ]
    columns: dict[str, list[tuple[Array, Array]]] = {
        "energy less offsets, eV/atom": [(np.array([a]), np.array([b])) for a, b in energies],
        "forces, eV/Å": [(s.forces.ravel(), p.forces.ravel()) for s, p in pairs if s.forces is not None],
        "stress, eV/Å³": [(s.stress.ravel(), p.stress.ravel()) for s, p in pairs if s.stress is not None],
    }
    return {
        title: (np.concatenate([a for a, _ in parts]), np.concatenate([b for _, b in parts]))
        for title, parts in columns.items()
        if parts
    }
