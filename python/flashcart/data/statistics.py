"""What a model knows of its data before training: energy offsets, energy scale, average number of neighbours.

Takes a training set, returns frozen numbers and sentences for the log. Sets nothing on a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from flashcart.data.dataset import Dataset
from flashcart.data.graph import species_of
from flashcart.errors import DataError

Array = npt.NDArray[np.float64]

_RELATIVE_SINGULAR_VALUE = 1e-6
"""Combinations of elements that the compositions of the data vary by less than this are left at the prior."""


@dataclass(frozen=True)
class OffsetSettings:
    """Where offsets come from; the configuration keys of the same names say what each means."""

    isolated_atom_energies: Mapping[str, float] | None = None
    atomic_shifts: Sequence[float] | None = None
    fit_atomic_shifts: bool = True


@dataclass(frozen=True)
class Statistics:
    """offsets, scales: [n_elements] float64, eV. average_neighbors: edges per atom. notes: sentences for the log."""

    offsets: torch.Tensor
    scales: torch.Tensor
    average_neighbors: float
    notes: tuple[str, ...]


def fit_statistics(dataset: Dataset, settings: OffsetSettings | None = None) -> Statistics:
    """Return the statistics of a training set.

    scale: root mean square of the force components (eV/Å, per Å of displacement), one number for every element.
    Raises DataError for offsets given for other elements than the set's.
    """
    offsets, offset_notes = fit_offsets(dataset, settings if settings is not None else OffsetSettings())
    scale, scale_note = _scale(dataset, offsets)
    average = float(dataset.n_edges.sum() / dataset.n_atoms.sum())
    return Statistics(
        offsets=torch.from_numpy(offsets),
        scales=torch.full((len(dataset.elements),), scale, dtype=torch.float64),
        average_neighbors=average if average > 0.0 else 1.0,
        notes=(*offset_notes, scale_note, f"average number of neighbours: {average:.2f}."),
    )


def fit_offsets(dataset: Dataset, settings: OffsetSettings) -> tuple[Array, tuple[str, ...]]:
    """Return the energy of each element's free atom (eV) as far as the data tell, and how it was found.

    Elements of isolated_atom_energies, else of frames of one atom without neighbours, have exactly these. The others
    are fitted: prior plus the smallest correction that minimises the squared error of energies per atom. The prior is
    atomic_shifts, else for every element the mean energy per atom. What the compositions cannot tell apart stays at the
    prior, so that a set of a single composition gives offsets of the size of energies per atom.
    """
    elements = dataset.elements
    counts = _compositions(dataset)
    energies = np.array([sample.energy for sample in dataset.samples])
    if settings.atomic_shifts is not None and len(settings.atomic_shifts) != len(elements):
        n_shifts = len(settings.atomic_shifts)
        raise DataError(
            f"atomic_shifts: got {n_shifts} numbers for the {len(elements)} elements {', '.join(elements)}."
        )
    if settings.atomic_shifts is not None and not settings.fit_atomic_shifts:
        shifts = np.array(settings.atomic_shifts, dtype=np.float64)
        return shifts, (_sentence("as given by atomic_shifts", elements, shifts),)
    free = np.array([sample.is_free_atom for sample in dataset.samples])
    known, source = _free_atoms(settings, elements, counts[free], energies[free])
    offsets = np.full(len(elements), np.nan)
    offsets[list(known)] = list(known.values())
    notes = [_sentence(source, [elements[k] for k in known], list(known.values()))] if known else []
    unknown = np.flatnonzero(np.isnan(offsets))
    if len(unknown) == 0:
        return offsets, tuple(notes)
    rest = energies - counts @ np.nan_to_num(offsets)
    prior = None if settings.atomic_shifts is None else np.array(settings.atomic_shifts, dtype=np.float64)[unknown]
    if settings.fit_atomic_shifts:
        offsets[unknown] = _fit(counts[:, unknown], counts.sum(axis=1), rest, prior)
        how = "fitted to the energies" if prior is None else "fitted as corrections to atomic_shifts"
    else:
        offsets[unknown] = 0.0
        how = "zero, as fit_atomic_shifts is false"
    notes.append(_sentence(how, [elements[k] for k in unknown], offsets[unknown]))
    return offsets, tuple(notes)


def _compositions(dataset: Dataset) -> Array:
    """Return the number of atoms of each element in each structure, [n_structures, n_elements]."""
    n_elements = len(dataset.elements)
    rows = [np.bincount(species_of(s.numbers, dataset.elements), minlength=n_elements) for s in dataset.samples]
    return np.array(rows, dtype=np.float64)


def _free_atoms(
    settings: OffsetSettings, elements: Sequence[str], counts: Array, energies: Array
) -> tuple[dict[int, float], str]:
    """Return {element index: eV} of the given isolated-atom energies, else of the free atoms (their mean).

    counts, energies: those of the frames that are free atoms.
    """
    given = settings.isolated_atom_energies
    if given is not None:
        for symbol in given:
            if symbol not in elements:
                raise DataError(f"isolated_atom_energies: {symbol} is not among the elements {', '.join(elements)}.")
        return {elements.index(symbol): energy for symbol, energy in given.items()}, "from isolated_atom_energies"
    kinds = counts.argmax(axis=1)
    means = {int(kind): float(energies[kinds == kind].mean()) for kind in np.unique(kinds)}
    return means, "from frames of one atom"


def _fit(counts: Array, n_atoms: Array, energies: Array, prior: Array | None) -> Array:
    """Return prior + c with the smallest |c| that minimises sum of ((E - counts (prior + c)) / n_atoms)^2.

    counts: [n_structures, n_unknown], the atoms of elements whose offset is not known. energies: eV, less the known
    part. prior None: the mean of E per such atom.
    """
    used = counts.sum(axis=1) > 0
    counts, n_atoms, energies = counts[used], n_atoms[used], energies[used]
    if len(energies) == 0:
        return np.zeros(counts.shape[1]) if prior is None else prior
    if prior is None:
        prior = np.full(counts.shape[1], (energies / counts.sum(axis=1)).mean())
    rows, errors = counts / n_atoms[:, None], (energies - counts @ prior) / n_atoms
    correction = np.linalg.lstsq(rows, errors, rcond=_RELATIVE_SINGULAR_VALUE)[0]
    return np.asarray(prior + correction)


def _scale(dataset: Dataset, offsets: Array) -> tuple[float, str]:
    """Return the RMS force component, else the spread of energies per atom, else 1."""
    forces = [sample.forces for sample in dataset.samples if sample.forces is not None and sample.n_atoms > 1]
    if forces:
        rms = float(np.sqrt(np.mean(np.concatenate(forces) ** 2)))
        if rms > 0.0:
            return rms, f"energy scale: {rms:.6g} eV, from the RMS of the force components."
    energies = np.array([sample.energy for sample in dataset.samples])
    spread = float(np.std((energies - _compositions(dataset) @ offsets) / dataset.n_atoms))
    if spread > 1e-9:
        return spread, f"energy scale: {spread:.6g} eV, from the spread of energies per atom, as no force is there."
    return 1.0, "energy scale: 1 eV, as neither forces nor energies vary."


def _sentence(how: str, elements: Sequence[str], offsets: Sequence[float] | Array) -> str:
    listed = ", ".join(f"{symbol} {offset:.6f}" for symbol, offset in zip(elements, offsets, strict=True))
    return f"energy offsets in eV, {how}: {listed}."
