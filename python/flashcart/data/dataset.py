"""Labelled structures of one file, ready for batching.

Takes a path, keys and the cutoff, returns a frozen `Dataset`: every structure with its checked labels and its edges in
a compact form (14 bytes each). Splitting and the fingerprint live here too, batches and statistics do not.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from ase.data import chemical_symbols

from flashcart.data.frames import Frame, Progress, read_frames
from flashcart.data.graph import cell_volume, species_of
from flashcart.data.labels import NO_LABELS, LabelKeys, read_labels
from flashcart.data.neighbors import neighbor_list
from flashcart.errors import DataError
from flashcart.potential import AtomicGraph

if TYPE_CHECKING:
    from flashcart.config_keys import LossTerm

__all__ = ["Dataset", "LabelKeys", "Sample", "read_dataset", "split_dataset"]

SMALLEST_DISTANCE = 0.1
"""Å; atoms closer than this are taken for a mistake in the data."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One labelled structure.

    frame: its number in the file. numbers: [n_atoms] int64. positions: [n_atoms, 3], Å. cell: [3, 3], Å. pbc: [3].
    receivers, senders: [n_edges] int32. shifts: [n_edges, 3], whole cell vectors. energy: eV. forces: [n_atoms, 3],
    eV/Å, or None. stress: [3, 3], eV/Å^3, or None. weight: factor of the loss. group: what splits keep together.
    """

    frame: int
    numbers: npt.NDArray[np.int64]
    positions: npt.NDArray[np.float64]
    cell: npt.NDArray[np.float64]
    pbc: npt.NDArray[np.bool_]
    receivers: npt.NDArray[np.int32]
    senders: npt.NDArray[np.int32]
    shifts: npt.NDArray[np.signedinteger]
    energy: float
    forces: npt.NDArray[np.float64] | None
    stress: npt.NDArray[np.float64] | None
    weight: float
    group: str | None

    @property
    def n_atoms(self) -> int:
        """Number of atoms."""
        return len(self.numbers)

    @property
    def n_edges(self) -> int:
        """Number of directed edges."""
        return len(self.receivers)

    @property
    def is_free_atom(self) -> bool:
        """Whether this is one atom without neighbours, so that its energy is the element's offset."""
        return self.n_atoms == 1 and self.n_edges == 0

    @property
    def volume(self) -> float:
        """Volume in Å^3, 0 where stress is not defined."""
        return cell_volume(self.cell, self.pbc)

    def graph(self, elements: Sequence[str]) -> AtomicGraph:
        """Return the graph; edge vectors are differences taken in float64."""
        senders, receivers = self.senders.astype(np.int64), self.receivers.astype(np.int64)
        lattice = np.where(self.pbc[:, None], self.cell, 0.0)
        edge_vectors = self.positions[senders] - self.positions[receivers] + self.shifts @ lattice
        return AtomicGraph(
            edge_vectors=torch.from_numpy(edge_vectors),
            senders=torch.from_numpy(senders),
            receivers=torch.from_numpy(receivers),
            species=torch.from_numpy(species_of(self.numbers, elements)),
            batch=torch.zeros(self.n_atoms, dtype=torch.int64),
            n_structures=1,
            volumes=torch.tensor([self.volume], dtype=torch.float64),
        )


@dataclass(frozen=True, eq=False)
class Dataset:
    """Structures of one file. elements: symbols in type order. r_max: Å. notes: sentences for the log."""

    path: Path
    elements: tuple[str, ...]
    r_max: float
    samples: tuple[Sample, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.samples)

    @cached_property
    def n_atoms(self) -> npt.NDArray[np.int64]:
        """Number of atoms of each structure, [n_structures]."""
        return np.array([sample.n_atoms for sample in self.samples], dtype=np.int64)

    @cached_property
    def n_edges(self) -> npt.NDArray[np.int64]:
        """Number of edges of each structure, [n_structures]."""
        return np.array([sample.n_edges for sample in self.samples], dtype=np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over species, positions, cells, labels and weights in order; paths and keys do not enter."""
        digest = hashlib.sha256()
        for sample in self.samples:
            numbers = np.asarray(sample.numbers, dtype="<i8")
            parts = [
                sample.positions,
                sample.cell,
                sample.pbc,
                sample.energy,
                sample.weight,
                sample.forces,
                sample.stress,
            ]
            for part in (numbers, *parts):
                digest.update(b"none" if part is None else np.ascontiguousarray(part, dtype="<f8").tobytes())
                digest.update(b"|")
        return digest.hexdigest()


def read_dataset(
    path: str | Path,
    keys: LabelKeys | None,
    *,
    r_max: float,
    elements: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Read an extended XYZ file in one pass and build the edges of every frame.

    keys: where labels stand; None reads none (energies are 0). elements: symbols in type order; None takes those of the
    file by atomic number. progress: called with bytes read and bytes in all. Raises DataError naming file, frame and
    line for everything that is wrong with the data.
    """
    sources: dict[str, str] = {}
    samples = []
    for frame in read_frames(path, progress):
        _check_structure(frame)
        if elements is not None:
            _check_elements(frame, elements)
        samples.append(_sample(frame, keys, sources, r_max))
    present = np.unique(np.concatenate([sample.numbers for sample in samples]))
    found = tuple(chemical_symbols[number] for number in present)
    notes = _notes(Path(path), samples, keys, sources)
    return Dataset(Path(path), tuple(elements) if elements is not None else found, r_max, tuple(samples), notes)


def require_edges(dataset: Dataset) -> None:
    """Raise DataError for a set (of more than lone atoms) in which no two atoms are within the cutoff."""
    if dataset.n_edges.sum() == 0:
        raise DataError(f"{dataset.path}: no two atoms are closer than r_max = {dataset.r_max:g} Å in any frame.")


def check_labels(dataset: Dataset, terms: Sequence[LossTerm], key: str) -> None:
    """Refuse a loss of which one property has no label in the whole set (single atoms need no forces)."""
    for prop in dict.fromkeys(term.property for term in terms):
        label = {"virials": "stress"}.get(prop, prop)
        labelled = any(getattr(sample, label) is not None for sample in dataset.samples)
        lone_atoms = all(sample.n_atoms == 1 for sample in dataset.samples)
        if not labelled and not (prop == "forces" and lone_atoms):
            raise DataError(f"{key} has a term of {prop}, but no frame of {dataset.path} has a label for it.")


def split_dataset(dataset: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Return (training, validation) sets, about `fraction` of the frames in the second.

    Frames of one group stay together. Free atoms stay in training, whose offsets they define. Both parts
    keep the order of the file. Raises DataError where a part would be empty.
    """
    groups: dict[str, list[int]] = {}
    for index, sample in enumerate(dataset.samples):
        if not sample.is_free_atom:
            groups.setdefault(f"frame {index}" if sample.group is None else sample.group, []).append(index)
    names = list(groups)
    order = np.random.default_rng([seed, len(dataset)]).permutation(len(names))
    wanted, chosen = max(1, round(fraction * len(dataset))), set[int]()
    for name in (names[position] for position in order):
        if len(chosen) + len(groups[name]) / 2 <= wanted and len(chosen) < wanted:
            chosen.update(groups[name])
    if not chosen or len(chosen) == len(dataset):
        what = "frames" if all(sample.group is None for sample in dataset.samples) else "groups"
        raise DataError(f"{dataset.path}: {len(names)} {what} cannot be split with valid_fraction={fraction:g}.")
    rest = [index for index in range(len(dataset)) if index not in chosen]
    return _subset(dataset, rest), _subset(dataset, sorted(chosen))


def _subset(dataset: Dataset, indices: Sequence[int]) -> Dataset:
    return replace(dataset, samples=tuple(dataset.samples[index] for index in indices))


def _check_structure(frame: Frame) -> None:
    """Refuse positions and cells that are not finite."""
    for atom in np.flatnonzero(~np.isfinite(frame.atoms.positions).all(axis=1)):
        position = frame.atoms.positions[atom].tolist()
        raise frame.place.error(f"the position of atom {atom} is not finite: {position}.", atom=int(atom))
    cell = frame.atoms.cell.array
    if not np.isfinite(cell).all():
        raise frame.place.error(f"the cell is not finite: {cell.tolist()}.", line=frame.place.line + 1)


def _check_elements(frame: Frame, elements: Sequence[str]) -> None:
    try:
        species_of(frame.atoms.numbers, elements)
    except DataError as error:
        raise frame.place.error(str(error)) from None


def _sample(frame: Frame, keys: LabelKeys | None, sources: dict[str, str], r_max: float) -> Sample:
    labels = NO_LABELS if keys is None else read_labels(frame, keys, sources)
    atoms = frame.atoms
    try:
        edges = neighbor_list(atoms.positions, atoms.cell.array, atoms.pbc, r_max)
    except DataError as error:
        raise frame.place.error(str(error), line=frame.place.line + 1) from None
    distances = np.linalg.norm(edges.vectors, axis=1)
    if len(distances) and distances.min() < SMALLEST_DISTANCE:
        edge = int(distances.argmin())
        i, j = sorted((int(edges.receivers[edge]), int(edges.senders[edge])))
        raise frame.place.error(
            f"atoms {i} and {j} are {distances[edge]:.3g} Å apart, less than {SMALLEST_DISTANCE:g} Å.", atom=i
        )
    widest = int(np.abs(edges.shifts).max(initial=0))
    return Sample(
        frame=frame.place.frame,
        numbers=atoms.numbers.astype(np.int64),
        positions=atoms.positions.astype(np.float64),
        cell=atoms.cell.array.astype(np.float64),
        pbc=np.array(atoms.pbc, dtype=bool),
        receivers=edges.receivers.astype(np.int32),
        senders=edges.senders.astype(np.int32),
        shifts=edges.shifts.astype(np.int16 if widest < 2**15 else np.int32),
        energy=labels.energy,
        forces=labels.forces,
        stress=labels.stress,
        weight=labels.weight,
        group=labels.group,
    )


def _notes(path: Path, samples: Sequence[Sample], keys: LabelKeys | None, sources: dict[str, str]) -> tuple[str, ...]:
    """Return what the log should say about a file: its size, where labels come from, what is masked."""
    n_atoms = sum(sample.n_atoms for sample in samples)
    notes = [f"{path}: {len(samples)} frames, {n_atoms} atoms, {sum(sample.n_edges for sample in samples)} edges."]
    if keys is None:
        return tuple(notes)
    configured = {"energy": keys.energy_key, "forces": keys.forces_key, "stress": keys.stress_key}
    plain = [name for name, source in sources.items() if source != configured[name]]
    if plain:
        notes.append(f"{path}: {', '.join(plain)} read from the plain keys, as the configured ones are absent.")
    for name in ("forces", "stress"):
        missing = sum(getattr(sample, name) is None for sample in samples)
        wanted = name == "forces" or keys.stress_key is not None or keys.virial_key is not None
        if missing and wanted:
            notes.append(f"{path}: {missing} of {len(samples)} frames have no {name}; masked.")
    if not math.isclose(sum(sample.weight for sample in samples), len(samples)):
        notes.append(f"{path}: structure weights sum to {sum(sample.weight for sample in samples):g}.")
    return tuple(notes)
