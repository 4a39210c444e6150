"""What is profiled: a model on its device, and the batches of each phase.

Takes the configuration, returns a frozen `Subject`. All reading, neighbour lists, fits and transfers happen here,
before anything is timed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from flashcart.config_profile import ProfileConfig
from flashcart.data.batching import BatchSettings, LabelledBatch, make_batch, plan_batches
from flashcart.data.dataset import Dataset, LabelKeys, check_labels, read_dataset, require_edges
from flashcart.data.statistics import OffsetSettings, fit_statistics
from flashcart.deploy import DTYPES, load_model
from flashcart.device import resolve_device
from flashcart.environment import read_environment, set_cublas_default
from flashcart.model import FlashCart, ModelConfig

RUN_KEYS = ("use_triton", "tf32", "deterministic")  # how a model is computed, not which function it is


@dataclass(frozen=True)
class Workload:
    """The batches of one phase, on the device, and where they are from."""

    phase: str
    path: Path
    batches: tuple[LabelledBatch, ...]

    @property
    def n_structures(self) -> int:
        """Structures in one run."""
        return sum(batch.graph.n_structures for batch in self.batches)

    @property
    def n_atoms(self) -> int:
        """Atoms in one run."""
        return sum(batch.graph.species.shape[0] for batch in self.batches)

    @property
    def n_edges(self) -> int:
        """Directed edges in one run."""
        return sum(batch.graph.senders.shape[0] for batch in self.batches)

    def as_json(self) -> dict[str, Any]:
        """Return the counts, of the run and of each batch, with the numbers of the frames in the file."""
        return {
            "path": str(self.path),
            "n_structures": self.n_structures,
            "n_atoms": self.n_atoms,
            "n_edges": self.n_edges,
            "batches": [
                {
                    "frames": batch.frames.tolist(),
                    "n_atoms": batch.graph.species.shape[0],
                    "n_edges": batch.graph.senders.shape[0],
                }
                for batch in self.batches
            ],
        }


@dataclass(frozen=True)
class Subject:
    """A model, its batches and what the log should say about both.

    source: where the model is from. deterministic: whether torch is asked for reproducible algorithms.
    """

    model: FlashCart
    device: torch.device
    dtype: torch.dtype
    source: str
    workloads: tuple[Workload, ...]
    deterministic: bool
    notes: tuple[str, ...]


def prepare(config: ProfileConfig) -> Subject:
    """Read the data, build or load the model. Raises UserError for what cannot be used."""
    device = resolve_device(config.device)
    deterministic = config.deterministic or read_environment().deterministic
    if deterministic:
        set_cublas_default()
    notes = _not_applied(config)
    if config.profile_checkpoint is not None:
        model = load_model(config.profile_checkpoint, device=device, dtype=config.profile_dtype)
        model.config = replace(model.config, **{name: getattr(config, name) for name in RUN_KEYS})
        source = f"{config.profile_checkpoint}, with its own model keys, offsets and scales"
        datasets = _datasets(config, model.config.elements, model.config.r_max)
    else:
        datasets = _datasets(config, config.elements, config.r_max)
        model, source = _new_model(config, datasets, device)
    model.config = replace(model.config, deterministic=deterministic)  # the variable counts, too
    for dataset in datasets.values():
        notes += dataset.notes
    if "training" in config.phases:
        check_labels(datasets[config.training_path], config.train_loss, "train_loss")
    workloads = tuple(_workload(config, phase, datasets, device, notes) for phase in config.phases)
    return Subject(model, device, model.embedding.dtype, source, workloads, deterministic, tuple(dict.fromkeys(notes)))


def _not_applied(config: ProfileConfig) -> list[str]:
    """Say which keys of training mean nothing here."""
    names = "devices, n_nodes, strategy, precision and predict_compile"
    notes = [f"{names} are not applied here: there is one device, profile_dtype and profile_compile_predict."]
    if config.checkpoint is not None:
        notes.append("checkpoint is not applied here; profile_checkpoint profiles a trained model.")
    return notes


def _datasets(config: ProfileConfig, elements: tuple[str, ...] | None, r_max: float) -> dict[Path, Dataset]:
    """Read each file once; without `elements`, those of the first file, the training structures if they are read.

    Labels are read where they are needed: for training and for the fit.
    """
    needed: dict[Path, LabelKeys | None] = {}
    if "training" in config.phases or is_fitted(config):
        needed[config.training_path] = LabelKeys.from_config(config)
    if "inference" in config.phases:
        needed.setdefault(config.inference_path, None)
    datasets: dict[Path, Dataset] = {}
    for path, keys in needed.items():
        datasets[path] = _read(path, keys, elements, r_max)
        elements = datasets[path].elements
    return datasets


def is_fitted(config: ProfileConfig) -> bool:
    """Whether offsets and scales are fitted first."""
    return config.profile_pre_fit and config.profile_checkpoint is None


def _read(path: Path, keys: LabelKeys | None, elements: tuple[str, ...] | None, r_max: float) -> Dataset:
    with tqdm(desc=f"reading {path.name}", unit="B", unit_scale=True, leave=False, disable=None) as bar:

        def move(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return read_dataset(path, keys, r_max=r_max, elements=elements, progress=move)


def _new_model(config: ProfileConfig, datasets: dict[Path, Dataset], device: torch.device) -> tuple[FlashCart, str]:
    """Return a model with initial parameters, and what to say about it."""
    elements = next(iter(datasets.values())).elements
    model_config = ModelConfig(elements=elements, **config.model_keys())
    model = FlashCart(model_config, seed=config.model_seed, dtype=DTYPES[config.profile_dtype or "float32"])
    source = f"initial parameters of model_seed={config.model_seed}"
    if not is_fitted(config):
        return model.to(device), f"{source}, no fit of offsets and scales"
    dataset = datasets[config.training_path]
    require_edges(dataset)
    settings = OffsetSettings(config.isolated_atom_energies, config.atomic_shifts, config.fit_atomic_shifts)
    fitted = fit_statistics(dataset, settings)
    model.set_statistics(
        offsets=fitted.offsets, scales=fitted.scales, average_neighbors=float(fitted.average_neighbors)
    )
    return model.to(device), f"{source}, offsets and scales fitted to {dataset.path}"


def _workload(
    config: ProfileConfig, phase: str, datasets: dict[Path, Dataset], device: torch.device, notes: list[str]
) -> Workload:
    """Return the first batches of an epoch; say where the set gives fewer or smaller ones than were asked for."""
    path = config.training_path if phase == "training" else config.inference_path
    dataset, size = datasets[path], config.batch_size(phase)
    settings = BatchSettings(size, seed=config.data_seed, dynamic=config.profile_dynamic_batching)
    plan = plan_batches(dataset, settings, epoch=0)
    own = phase == "training" and config.profile_train_batch_size is not None
    name = "profile_train_batch_size" if own else "profile_batch_size"
    if size > len(dataset):
        notes.append(f"{name}: {size} is more than the {len(dataset)} structures of {path}; a batch holds all of them.")
    if config.profile_n_batches > len(plan):
        notes.append(
            f"profile_n_batches: {config.profile_n_batches} is more than the {len(plan)} of {phase}; all are run."
        )
    batches = tuple(make_batch(dataset, indices) for indices in plan[: config.profile_n_batches])
    return Workload(phase, path, tuple(batch.to(device) for batch in batches))
