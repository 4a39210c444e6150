"""Starting from a trained model.

Takes a deployable model and a new data set, returns the model ready to train, its energy offsets adapted to the new
data's energy reference. Weights, scales and the average number of neighbours stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from flashcart.config import MODEL_KEYS, Config
from flashcart.data.batching import LabelledBatch
from flashcart.data.statistics import OffsetSettings, fit_offsets
from flashcart.deploy import load_model
from flashcart.errors import ConfigError
from flashcart.model import FlashCart
from flashcart.potential import Prediction
from flashcart.training.evaluation import evaluate
from flashcart.training.loader import Loader
from flashcart.training.run_log import logger

# Keys that say how a model is computed, not which function it is.
RUN_ONLY_KEYS = ("use_triton", "tf32", "deterministic")


def load_start(config: Config, device: torch.device, dtype: torch.dtype) -> FlashCart:
    """Return the model of `checkpoint` with trainable parameters; raise ConfigError where model keys differ from it."""
    assert config.checkpoint is not None
    model = load_model(config.checkpoint, device=str(device), dtype=str(dtype).removeprefix("torch."))
    for key in MODEL_KEYS:
        wanted, found = getattr(config, key), getattr(model.config, key)
        if key not in RUN_ONLY_KEYS and wanted != found:
            raise ConfigError(f"{key}: is {wanted} here but {found} in {config.checkpoint}; it must be the same.")
    logger.info(f"starting from {config.checkpoint}.")
    return model.requires_grad_(True)


def refit_offsets(model: FlashCart, loader: Loader, settings: OffsetSettings) -> FlashCart:
    """Return the model with offsets refitted to the data set of `loader`, whose batches keep the order of the file.

    Fitted is what the model's interaction energies leave of the energies, with the old offsets as the prior, so that
    another energy reference costs the model nothing of what it knows.
    """
    old = model.offsets.detach().clone()
    interactions: list[float] = []

    def visit(prediction: Prediction, batch: LabelledBatch) -> None:
        free = torch.zeros_like(prediction.energy).index_add(0, batch.graph.batch, old[batch.graph.species])
        interactions.extend((prediction.energy - free).tolist())

    evaluate(model, loader.batches(), (), visit)
    samples = tuple(
        replace(sample, energy=sample.energy - interaction)
        for sample, interaction in zip(loader.dataset.samples, interactions, strict=True)
    )
    if settings.atomic_shifts is None:
        settings = replace(settings, atomic_shifts=old.tolist())
    offsets, _ = fit_offsets(replace(loader.dataset, samples=samples), settings)
    model.set_statistics(
        offsets=torch.from_numpy(offsets), scales=model.scales, average_neighbors=float(model.average_neighbors)
    )
    changes = ", ".join(
        f"{element} {before:.6f} -> {after:.6f}"
        for element, before, after in zip(model.config.elements, old.tolist(), offsets.tolist(), strict=True)
    )
    logger.info(f"energy offsets in eV, refitted to the training data: {changes}.")
    return model
