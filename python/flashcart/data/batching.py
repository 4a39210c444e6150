"""Batches of a dataset: which structures, in which order, and their tensors.

Takes a `Dataset`, settings and an epoch. The plan of an epoch is a pure function of these, so that a run can resume in
the middle of one. Moves nothing to a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch

from flashcart.data.dataset import Dataset
from flashcart.data.graph import collate
from flashcart.errors import DataError
from flashcart.potential import AtomicGraph

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BatchSettings:
    """How an epoch is cut into batches.

    batch_size: structures per batch; with `dynamic` the budgets are batch_size x average atoms and x average edges.
    seed: order of the structures. shuffle: a new order each epoch; False keeps the order of the file. drop_last:
    without `dynamic`, leave out an incomplete last batch.
    """

    batch_size: int
    seed: int = 1234
    dynamic: bool = True
    drop_last: bool = False
    shuffle: bool = True


@dataclass(frozen=True)
class LabelledBatch:
    """Structures of one batch with their labels, float64; what has no label is 0 there.

    energy: [n_structures], eV. forces: [n_atoms, 3], eV/Å. stress: [n_structures, 3, 3], eV/Å^3. has_energy,
    has_forces, has_stress: [n_structures] bool. weights: [n_structures]. n_atoms, frames: [n_structures] int64, the
    latter numbers in the file.
    """

    graph: AtomicGraph
    energy: torch.Tensor
    has_energy: torch.Tensor
    forces: torch.Tensor
    has_forces: torch.Tensor
    stress: torch.Tensor
    has_stress: torch.Tensor
    weights: torch.Tensor
    n_atoms: torch.Tensor
    frames: torch.Tensor

    def to(self, device: torch.device | str) -> LabelledBatch:
        """Return the same batch with every tensor on `device`."""
        return LabelledBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def plan_batches(dataset: Dataset, settings: BatchSettings, epoch: int) -> list[Indices]:
    """Return the indices of each batch of an epoch; the same on every call and in every process.

    Raises DataError where drop_last leaves no batch.
    """
    order: Indices = np.arange(len(dataset), dtype=np.int64)
    if settings.shuffle:
        order = np.random.default_rng([settings.seed, epoch]).permutation(len(dataset)).astype(np.int64)
    if settings.dynamic:
        return _fill_budgets(dataset, order, settings.batch_size)
    batches = [order[start : start + settings.batch_size] for start in range(0, len(order), settings.batch_size)]
    if settings.drop_last and len(batches[-1]) < settings.batch_size:
        batches.pop()
    if not batches:
        raise DataError(
            f"{dataset.path}: {len(dataset)} frames make no batch of {settings.batch_size} with drop_last=true."
        )
    return batches


def _fill_budgets(dataset: Dataset, order: Indices, target: int) -> list[Indices]:
    """Cut `order` before a structure would exceed the atom or edge budget; one that exceeds it alone stands alone."""
    sizes = np.stack([dataset.n_atoms, dataset.n_edges], axis=1)
    budgets = target * sizes.mean(axis=0)
    batches: list[Indices] = []
    batch: list[int] = []
    used = np.zeros(2)
    for index in order.tolist():
        # Budgets are averages times an integer: the margin keeps rounding from cutting one structure too early.
        if batch and (used + sizes[index] > budgets * (1 + 1e-12)).any():
            batches.append(np.array(batch, dtype=np.int64))
            batch, used = [], np.zeros(2)
        batch.append(index)
        used = used + sizes[index]
    return [*batches, np.array(batch, dtype=np.int64)]


def make_batch(dataset: Dataset, indices: Sequence[int] | Indices) -> LabelledBatch:
    """Return the tensors of these structures, in this order, on the CPU."""
    samples = [dataset.samples[index] for index in indices]
    no_stress = np.zeros((3, 3))
    forces = [sample.forces if sample.forces is not None else np.zeros((sample.n_atoms, 3)) for sample in samples]
    stress = [sample.stress if sample.stress is not None else no_stress for sample in samples]
    return LabelledBatch(
        graph=collate([sample.graph(dataset.elements) for sample in samples]),
        energy=torch.tensor([sample.energy for sample in samples], dtype=torch.float64),
        has_energy=torch.ones(len(samples), dtype=torch.bool),
        forces=torch.from_numpy(np.concatenate(forces)),
        has_forces=torch.tensor([sample.forces is not None for sample in samples]),
        stress=torch.from_numpy(np.stack(stress)),
        has_stress=torch.tensor([sample.stress is not None for sample in samples]),
        weights=torch.tensor([sample.weight for sample in samples], dtype=torch.float64),
        n_atoms=torch.tensor([sample.n_atoms for sample in samples], dtype=torch.int64),
        frames=torch.tensor([sample.frame for sample in samples], dtype=torch.int64),
    )


def batches(dataset: Dataset, settings: BatchSettings, epoch: int, start: int = 0) -> Iterator[LabelledBatch]:
    """Yield the batches of an epoch from number `start` on."""
    for indices in plan_batches(dataset, settings, epoch)[start:]:
        yield make_batch(dataset, indices)
