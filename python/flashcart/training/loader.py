"""Batches of a data set, assembled in this process or in others.

Takes a data set, settings and an epoch, yields batches on a device in the planned order.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from tqdm import tqdm

from flashcart.data.batching import BatchSettings, LabelledBatch, make_batch, plan_batches
from flashcart.data.dataset import Dataset


@dataclass(frozen=True)
class Loader:
    """A data set with the way to cut it into batches; n_workers processes assemble them (0: this one)."""

    dataset: Dataset
    settings: BatchSettings
    device: torch.device
    n_workers: int = 0

    def n_batches(self, epoch: int) -> int:
        """Return the number of batches of an epoch (from 0)."""
        return len(plan_batches(self.dataset, self.settings, epoch))

    def batches(self, epoch: int = 0, start: int = 0) -> Iterator[LabelledBatch]:
        """Yield the batches of an epoch from number `start` on."""
        planned = _PlannedBatches(self.dataset, self.settings, epoch, start)
        if self.n_workers == 0:
            for number in range(len(planned)):
                yield planned[number].to(self.device)
            return
        # Its own generator: seeding the workers draws a number, and the run's random state must not depend on it.
        generator = torch.Generator().manual_seed(self.settings.seed)
        settings: dict[str, Any] = {
            "num_workers": self.n_workers,
            "worker_init_fn": _ignore_interrupts,
            "generator": generator,
        }
        for batch in DataLoader(planned, batch_size=None, **settings):
            yield batch.to(self.device)

    def bar(self, name: str, epoch: int = 0, start: int = 0) -> Iterator[LabelledBatch]:
        """Yield the same batches, with a progress bar where stderr is a terminal."""
        batches = self.batches(epoch, start)
        yield from tqdm(batches, name, self.n_batches(epoch), initial=start, leave=False, disable=None)


def _ignore_interrupts(worker: int) -> None:
    """Leave Ctrl-C, which a terminal sends to workers too, to the training process: it still wants their batches."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _PlannedBatches(TorchDataset[LabelledBatch]):
    """The batches of an epoch by number."""

    def __init__(self, dataset: Dataset, settings: BatchSettings, epoch: int, start: int) -> None:
        self.dataset = dataset
        self.plan = plan_batches(dataset, settings, epoch)[start:]

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, number: int) -> LabelledBatch:
        return make_batch(self.dataset, self.plan[number])
