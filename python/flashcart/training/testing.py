"""Evaluation of a trained model on labelled data: what flashcart-test does.

Takes a configuration, returns the errors of each set; leaves a table in the log, test_metrics.json, and the files of
`report.py` in the run's folder.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from flashcart.config import Config, LossTerm
from flashcart.data.dataset import Dataset, split_dataset
from flashcart.deploy import load_model, read_metadata, write_atomic
from flashcart.device import resolve_device
from flashcart.errors import ConfigError
from flashcart.model import FlashCart
from flashcart.model_kernels import prepare_kernels
from flashcart.training.evaluation import evaluate
from flashcart.training.loader import Loader
from flashcart.training.metrics import metric_name, shown
from flashcart.training.report import Report, write_report
from flashcart.training.run_log import log_file, logger
from flashcart.training.setup import BEST_FILE, check_supported, dtype_of, prepare_folder, read, validation_settings

METRICS_FILE, LOG_FILE = "test_metrics.json", "test.log"
_STANDARD_TERMS = tuple(
    LossTerm(prop, reduce, "per_atom" if prop == "energy" else "none")
    for prop in ("energy", "forces", "stress")
    for reduce in ("rmse", "mae", "maxe")
)


def test(config: Config) -> dict[str, dict[str, float]]:
    """Evaluate a model; return the errors (name with unit -> value) of each set, `valid` and `test`.

    Raises UserError for a configuration, model or data that cannot be used.
    """
    config.require("output_path")
    check_supported(config)
    device = resolve_device(config.device)
    assert config.output_path is not None
    path = config.checkpoint if config.checkpoint is not None else config.output_path / BEST_FILE
    read_metadata(path)  # before a folder is made
    folder = prepare_folder(config)
    with log_file(folder / LOG_FILE):
        dtype = None if config.precision is None else str(dtype_of(config)).removeprefix("torch.")
        model = load_model(path, device=str(device), dtype=dtype)
        prepare_kernels(model, "inference")
        terms = tuple({metric_name(term): term for term in (*config.valid_losses, *_STANDARD_TERMS)}.values())
        errors = {}
        for name, dataset in _datasets(config, model).items():
            errors[name] = _evaluate(folder, name, model, Loader(dataset, validation_settings(config), device), terms)
        logger.info(f"errors of {path}:\n{_table(errors, terms)}")
        document = {"checkpoint": str(path), "errors": errors}
        write_atomic(folder / METRICS_FILE, f"{json.dumps(document, indent=2, ensure_ascii=False)}\n".encode())
    return errors


def _datasets(config: Config, model: FlashCart) -> dict[str, Dataset]:
    """Read the sets that the configuration names, with the model's elements and cutoff."""
    elements, r_max = model.config.elements, model.config.r_max
    datasets = {}
    if config.valid_path is not None:
        datasets["valid"] = read(config.valid_path, config, elements, r_max)
    elif config.valid_fraction is not None and config.train_path is not None:
        whole = read(config.train_path, config, elements, r_max)
        datasets["valid"] = split_dataset(whole, config.valid_fraction, config.data_seed)[1]
    if config.test_path is not None:
        datasets["test"] = read(config.test_path, config, elements, r_max)
    if not datasets:
        raise ConfigError("test_path: no data to evaluate; give test_path or valid_path.")
    return datasets


def _evaluate(
    folder: Path, name: str, model: FlashCart, loader: Loader, terms: tuple[LossTerm, ...]
) -> dict[str, float]:
    """Evaluate one set, write its files, return the errors of the terms that it has labels for."""
    report = Report(loader.dataset)
    metrics = evaluate(model, loader.bar(f"evaluating {name}"), terms, report.add)
    write_report(folder, name, report, model.offsets.cpu())
    return {name: value for name, value in metrics.values().items() if not math.isnan(value)}


def _table(errors: dict[str, dict[str, float]], terms: tuple[LossTerm, ...]) -> str:
    """Return errors for people: a line per term, a column per set."""
    rows = [["", *errors]]
    for term in terms:
        name = metric_name(term)
        if any(name in values for values in errors.values()):
            texts = [shown(term, values[name]) if name in values else ("", "-") for values in errors.values()]
            rows.append([next(label for label, _ in texts if label), *(text for _, text in texts)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )
