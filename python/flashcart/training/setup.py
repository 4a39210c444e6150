"""What a run has before its first step: data, statistics, model, optimizers.

Takes a configuration, returns a frozen `Run`. Reads data and perhaps a deployable model; writes nothing, so that a run
that must be refused is refused before anything is overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.optim.swa_utils import AveragedModel
from tqdm import tqdm

from flashcart.config import Config, LossTerm
from flashcart.data.batching import BatchSettings
from flashcart.data.dataset import Dataset, LabelKeys, check_labels, read_dataset, require_edges, split_dataset
from flashcart.data.statistics import OffsetSettings, fit_statistics
from flashcart.environment import read_environment, set_cublas_default
from flashcart.errors import ConfigError, UserError
from flashcart.model import FlashCart, ModelConfig
from flashcart.training.finetune import RUN_ONLY_KEYS, load_start, refit_offsets
from flashcart.training.loader import Loader
from flashcart.training.optimizer import Optimizers, build_average, build_optimizers
from flashcart.training.run_log import logger
from flashcart.training.schedule import Schedule

BEST_FILE = "best.safetensors"
_DTYPES = {None: torch.float32, "32-true": torch.float32, "64-true": torch.float64}


@dataclass(frozen=True)
class Run:
    """Everything that stays the same during a run; model, optimizers and average hold what is learnt.

    identity: what a state on disk must share for the run to continue from it, as flat JSON values.
    """

    config: Config
    folder: Path
    model: FlashCart
    average: AveragedModel | None
    optimizers: Optimizers
    schedule: Schedule
    training: Loader
    validation: Loader
    identity: dict[str, object]

    @property
    def validation_terms(self) -> tuple[LossTerm, ...]:
        """Return the terms that are evaluated on the validation set."""
        return (*self.config.valid_losses, *self.config.early_stopping_loss)

    @property
    def deployed(self) -> FlashCart:
        """Return the model that is validated and deployed: the moving average, if there is one."""
        return self.model if self.average is None else self.average.module


def check_supported(config: Config) -> None:
    """Raise ConfigError for what this version does not do yet."""
    if config.devices not in ("auto", 1) or config.n_nodes != 1 or config.strategy != "auto":
        raise ConfigError("devices, n_nodes, strategy: training runs on one device in this version; leave them unset.")
    if config.precision not in _DTYPES:
        raise ConfigError(f"precision: {config.precision} is not supported in this version; allowed: 32-true, 64-true.")
    if config.predict_compile:
        raise ConfigError("predict_compile: true is not supported in this version; set it to false.")


def dtype_of(config: Config) -> torch.dtype:
    """Return the floating-point type of the parameters."""
    return _DTYPES[config.precision]


def prepare_folder(config: Config) -> Path:
    """Return the folder of the run, made if need be; raise UserError where it cannot be written."""
    path = config.output_path
    assert path is not None
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"output_path: {path} cannot be made ({error.strerror}).") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(f"output_path: {path} cannot be written.")
    return path


def prepare_run(config: Config, folder: Path, device: torch.device) -> Run:
    """Read the data, build what learns. Raises UserError for data, checkpoint or keys that cannot be used."""
    _set_torch_options(config)
    start = None if config.checkpoint is None else load_start(config, device, dtype_of(config))
    train_set, valid_set = _read_data(config, None if start is None else start.config.elements)
    training, validation = _loaders(config, train_set, valid_set, device)
    statistics = fit_statistics(train_set, _offset_settings(config))
    if start is None:
        model = _new_model(config, train_set.elements, device)
        model.set_statistics(
            offsets=statistics.offsets, scales=statistics.scales, average_neighbors=statistics.average_neighbors
        )
        for note in statistics.notes:
            logger.info(note)
    else:
        model = refit_offsets(start, replace(validation, dataset=train_set), _offset_settings(config))
    return Run(
        config=config,
        folder=folder,
        model=model.train(),
        average=build_average(model, config.ema_decay),
        optimizers=build_optimizers(model, config),
        schedule=_schedule(config),
        training=training,
        validation=validation,
        identity=_identity(config, train_set, valid_set, statistics.offsets),
    )


def _set_torch_options(config: Config) -> None:
    """Apply the keys that torch keeps per process."""
    torch.manual_seed(config.model_seed)
    torch.backends.cuda.matmul.fp32_precision = "tf32" if config.tf32 else "ieee"
    deterministic = config.deterministic or read_environment().deterministic
    if deterministic:
        set_cublas_default()
    torch.use_deterministic_algorithms(deterministic)


def _read_data(config: Config, elements: tuple[str, ...] | None) -> tuple[Dataset, Dataset]:
    """Return training and validation sets, of the elements given (a checkpoint's), configured or found."""
    assert config.train_path is not None
    if elements is not None and config.elements not in (None, elements):
        raise ConfigError(f"elements: the checkpoint has {' '.join(elements)}; leave the key unset or equal.")
    train_set = read(config.train_path, config, elements or config.elements, config.r_max)
    require_edges(train_set)
    if config.valid_fraction is not None:
        train_set, valid_set = split_dataset(train_set, config.valid_fraction, config.data_seed)
        logger.info(f"{len(train_set)} frames to train on, {len(valid_set)} split off to validate on.")
    elif config.valid_path is not None:
        valid_set = read(config.valid_path, config, train_set.elements, config.r_max)
    else:
        raise ConfigError("valid_path: required to train but not set; give it, or valid_fraction.")
    check_labels(train_set, config.train_loss, "train_loss")
    check_labels(valid_set, config.early_stopping_loss, "early_stopping_loss")
    return train_set, valid_set


def read(path: Path, config: Config, elements: tuple[str, ...] | None, r_max: float) -> Dataset:
    """Read one file, with a bar on a terminal; log what there is to know about it."""
    keys = LabelKeys.from_config(config)
    with tqdm(desc=f"reading {path.name}", unit="B", unit_scale=True, leave=False, disable=None) as bar:
        dataset = read_dataset(path, keys, r_max=r_max, elements=elements, progress=_advance(bar))
    for note in dataset.notes:
        logger.info(note)
    return dataset


def _advance(bar: tqdm) -> Callable[[int, int], None]:
    """Return the callback that moves a bar to a number of bytes."""

    def move(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return move


def _loaders(config: Config, train_set: Dataset, valid_set: Dataset, device: torch.device) -> tuple[Loader, Loader]:
    training = BatchSettings(
        batch_size=config.train_batch_size,
        seed=config.data_seed,
        dynamic=config.dynamic_batching,
        drop_last=config.drop_last,
    )
    return (
        Loader(train_set, training, device, config.n_workers),
        Loader(valid_set, validation_settings(config), device, config.n_workers),
    )


def validation_settings(config: Config) -> BatchSettings:
    """Return how a set is cut into batches for evaluation: in the order of the file."""
    return BatchSettings(batch_size=config.eval_batch_size, dynamic=config.dynamic_batching, shuffle=False)


def _offset_settings(config: Config) -> OffsetSettings:
    return OffsetSettings(config.isolated_atom_energies, config.atomic_shifts, config.fit_atomic_shifts)


def _new_model(config: Config, elements: tuple[str, ...], device: torch.device) -> FlashCart:
    """Return a model with initial parameters; they are drawn on the CPU and do not depend on the device."""
    model_config = ModelConfig(elements=elements, **config.model_keys())
    return FlashCart(model_config, seed=config.model_seed, dtype=dtype_of(config)).to(device)


def _schedule(config: Config) -> Schedule:
    """Return the learning-rate schedule, shortened where it does not fit into max_epochs, with a note."""
    configured = Schedule(
        max_epochs=config.max_epochs,
        warmup_epochs=config.warmup_epochs,
        decay_epochs=config.decay_epochs,
        start_factor=config.start_factor,
        end_factor=config.end_factor,
        warmup_shape=config.warmup_shape,
        decay_shape=config.decay_shape,
    )
    fitted = configured.fitted()
    if fitted is not configured:
        logger.info(
            f"max_epochs={config.max_epochs} is less than warmup_epochs + decay_epochs: shortened from "
            f"{config.warmup_epochs} and {config.decay_epochs} to {fitted.warmup_epochs:.3g} and "
            f"{fitted.decay_epochs:.3g} epochs."
        )
    return fitted


def _identity(config: Config, train_set: Dataset, valid_set: Dataset, offsets: torch.Tensor) -> dict[str, object]:
    """Return what must not change between the parts of one run."""
    model_keys = {key: value for key, value in config.model_keys().items() if key not in RUN_ONLY_KEYS}
    return {
        **model_keys,
        "elements": train_set.elements,
        "precision": str(dtype_of(config)).removeprefix("torch."),
        "optimizer": config.optimizer,
        "ema_decay is set": config.ema_decay is not None,
        "fine-tuning": config.checkpoint is not None,
        "offsets": [round(offset, 6) for offset in offsets.tolist()],
        "training data": f"{len(train_set)} frames, fingerprint {train_set.fingerprint[:16]}",
        "validation data": f"{len(valid_set)} frames, fingerprint {valid_set.fingerprint[:16]}",
    }
