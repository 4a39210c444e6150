"""Training: the order of this file is the order of events.

Takes a configuration, returns how the run ended; leaves the run's folder (metrics, deployable models, a state to
continue from). One process, one device.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch

from flashcart.config import Config
from flashcart.data.batching import LabelledBatch
from flashcart.deploy import save_model, write_atomic
from flashcart.device import resolve_device
from flashcart.errors import FlashCartError
from flashcart.model_kernels import prepare_kernels
from flashcart.potential import backward, predict
from flashcart.training.evaluation import evaluate
from flashcart.training.loss import weighted_loss
from flashcart.training.metrics import Metrics, metric_name, shown
from flashcart.training.metrics_file import MetricsFile
from flashcart.training.progress import Progress
from flashcart.training.resume import resume_run, save_run
from flashcart.training.run_log import log_file, logger
from flashcart.training.setup import BEST_FILE, Run, check_supported, prepare_folder, prepare_run
from flashcart.training.signals import StopRequest, stop_on_signals

LAST_FILE, CONFIG_FILE, LOG_FILE = "last.safetensors", "config.yaml", "train.log"


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its position, and in a sentence why it is complete (None: a signal stopped it)."""

    progress: Progress
    complete: str | None


class NonFiniteLossError(FlashCartError):
    """The loss or its gradient is not a finite number."""


def train(config: Config) -> Outcome:
    """Train a model, or continue the run that stands in `output_path`.

    Raises UserError for a configuration, data or folder that cannot be used, and NonFiniteLossError.
    """
    config.require("train_path", "output_path")
    check_supported(config)
    device = resolve_device(config.device)
    folder = prepare_folder(config)
    with log_file(folder / LOG_FILE):
        run = prepare_run(config, folder, device)
        progress = resume_run(run) or Progress()
        _announce(run, device)
        prepare_kernels(run.model, "training")
        write_atomic(folder / CONFIG_FILE, config.to_yaml().encode())
        metrics_file = MetricsFile(folder, _columns(run), keep_epochs=progress.epoch)
        with stop_on_signals() as stop:
            while (complete := _complete(run, progress)) is None and not stop:
                progress = _train_epoch(run, progress, metrics_file, stop)
            if complete is None:  # wherever the request came, between two epochs too
                save_run(run, progress)
        if complete is None:
            logger.warning(f"stopped by {stop.signal_name} after step {progress.step}; the same command continues.")
        else:
            logger.info(f"{complete}; best model, of epoch {progress.best_epoch}: {folder / BEST_FILE}")
        return Outcome(progress, complete)


def _train_epoch(run: Run, progress: Progress, metrics_file: MetricsFile, stop: StopRequest) -> Progress:
    """Do the rest of an epoch: train, validate, record, save. At a request to stop, return at once."""
    start = time.perf_counter()
    progress, row = _train_batches(run, progress, stop)
    done = progress.epoch + 1
    validated = None
    if not stop and (done % run.config.validate_every == 0 or done == run.config.max_epochs):
        validated = evaluate(
            run.deployed, takewhile(lambda _: not stop, run.validation.batches()), run.validation_terms
        )
    if stop:
        return progress
    progress = replace(progress, epoch=done, batch=0, running={})
    if validated is not None:
        loss = validated.weighted_sum(run.config.early_stopping_loss)
        if not math.isfinite(loss):
            raise NonFiniteLossError(f"the validation loss after epoch {done} is not finite; {_kept(run, progress)}.")
        progress = progress.after_validation(loss)
        row |= {f"valid_{name}": value for name, value in validated.values().items()} | {"early_stopping_loss": loss}
    row["seconds"] = round(time.perf_counter() - start, 3)
    metrics_file.append(row | _weight_norms(run))
    logger.info(_epoch_line(run, progress, row))
    _save(run, progress, {} if validated is None else validated.values())
    return progress


def _train_batches(run: Run, progress: Progress, stop: StopRequest) -> tuple[Progress, dict[str, Any]]:
    """Do the optimizer steps that an epoch still has; return the position and the epoch's row of metrics.csv."""
    metrics = Metrics(run.config.valid_losses)
    metrics.load_state(progress.running, run.training.device)
    loss_sum = progress.running.get("loss", [0.0])[0]
    epoch, n_batches = progress.epoch, run.training.n_batches(progress.epoch)
    for batch in run.training.bar(f"epoch {epoch + 1}/{run.config.max_epochs}", epoch, progress.batch):
        if stop:
            break
        start = epoch + progress.batch / n_batches
        run.optimizers.set_learning_rate_factor(run.schedule.factor(start, start + 1 / n_batches))
        loss_sum += _step(run, batch, metrics, progress)
        progress = replace(progress, batch=progress.batch + 1, step=progress.step + 1)
    progress = replace(progress, running=metrics.state() | {"loss": [loss_sum]})
    row = {"epoch": epoch + 1, "step": progress.step, "lr": run.optimizers.learning_rate}
    row |= {"train_loss": loss_sum / max(progress.batch, 1)}
    return progress, row | {f"train_{name}": value for name, value in metrics.values().items()}


def _step(run: Run, batch: LabelledBatch, metrics: Metrics, progress: Progress) -> float:
    """Do one optimizer step; return the loss before it. Nothing changes where the loss is not finite."""
    prediction = predict(run.model, batch.graph, training=True)
    loss = weighted_loss(run.config.train_loss, prediction, batch)
    run.optimizers.zero_grad()
    backward(loss, run.model)
    limit = math.inf if run.config.grad_clip_norm is None else run.config.grad_clip_norm
    gradient_norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), limit)
    value = float(loss.detach())
    if not math.isfinite(value) or not math.isfinite(gradient_norm):
        frames = ", ".join(str(frame) for frame in batch.frames.tolist())
        raise NonFiniteLossError(
            f"the {'gradient' if math.isfinite(value) else 'loss'} is not finite in step {progress.step + 1} of epoch "
            f"{progress.epoch + 1}, whose batch holds frames {frames} of {run.training.dataset.path}; "
            f"{_kept(run, progress)}."
        )
    run.optimizers.step()
    if run.average is not None:
        run.average.update_parameters(run.model)
    metrics.add(prediction, batch)
    return value


def _complete(run: Run, progress: Progress) -> str | None:
    """Return why nothing is left to do, or None."""
    return progress.finished(run.config.max_epochs, run.config.early_stopping_patience)


def _kept(run: Run, progress: Progress) -> str:
    """Say which models an aborted run leaves."""
    if progress.best_epoch == 0:
        return "there is no model yet"
    return f"{run.folder / BEST_FILE} is the model of epoch {progress.best_epoch}"


def _save(run: Run, progress: Progress, errors: Mapping[str, float]) -> None:
    """Write the deployable models and the state that are due after an epoch."""
    summary = {
        "epochs": progress.epoch,
        "steps": progress.step,
        "training_frames": len(run.training.dataset),
        "validation_frames": len(run.validation.dataset),
        "validation_errors": dict(errors),
    }
    if progress.has_improved:
        save_model(run.folder / BEST_FILE, run.deployed, training_summary=summary)
    if progress.epoch % run.config.save_every == 0 or _complete(run, progress):
        save_model(run.folder / LAST_FILE, run.deployed, training_summary=summary)
        save_run(run, progress)


def _columns(run: Run) -> list[str]:
    """Return the columns of metrics.csv."""
    training = [f"train_{metric_name(term)}" for term in run.config.valid_losses]
    validation = [f"valid_{metric_name(term)}" for term in run.validation_terms]
    columns = ["epoch", "step", "lr", "train_loss", *training, *validation, "early_stopping_loss", "seconds"]
    return list(dict.fromkeys([*columns, *_weight_norms(run)]))


def _weight_norms(run: Run) -> dict[str, float]:
    """Return the Euclidean norm of each parameter, where asked for."""
    if not run.config.log_weight_norms:
        return {}
    return {f"norm_{name}": float(weight.detach().norm()) for name, weight in run.model.named_parameters()}


def _announce(run: Run, device: torch.device) -> None:
    """Log what is about to be trained on what."""
    n_parameters = sum(parameter.numel() for parameter in run.model.parameters())
    logger.info(
        f"training on {device}: {n_parameters} parameters, {len(run.training.dataset)} frames in "
        f"{run.training.n_batches(0)} batches, {len(run.validation.dataset)} frames to validate on."
    )


def _epoch_line(run: Run, progress: Progress, row: Mapping[str, Any]) -> str:
    """Return the line of an epoch for people."""
    parts = [f"epoch {progress.epoch}/{run.config.max_epochs}: loss {row['train_loss']:.4g}"]
    if "early_stopping_loss" in row:
        parts += [" ".join(shown(term, row[f"valid_{metric_name(term)}"])) for term in run.config.valid_losses]
    parts += [f"lr {row['lr']:.2g}", f"{row['seconds']:.1f} s"]
    return ", ".join(parts) + (" (best)" if progress.has_improved and "early_stopping_loss" in row else "")
