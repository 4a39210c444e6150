"""Runs from beginning to end: what they leave, when they stop, how they fail."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Callable
from pathlib import Path

import ase.io
import numpy as np
import pytest
import torch

from flashcart.config import Config, load_config
from flashcart.deploy import load_model, read_metadata
from flashcart.errors import ConfigError, DataError, UserError
from flashcart.training import loop
from flashcart.training.loop import NonFiniteLossError, train

Configure = Callable[..., Config]


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_run_leaves_its_files(configure: Configure):
    config = configure("max_epochs=2")
    outcome = train(config)
    assert outcome.complete == "all 2 epochs are done"
    assert {path.name for path in config.output_path.iterdir()} == {
        "config.yaml",
        "train.log",
        "metrics.csv",
        "best.safetensors",
        "last.safetensors",
        "state.safetensors",
        "state.json",
    }
    assert load_config(config.output_path / "config.yaml") == config
    assert [row["epoch"] for row in rows_of(config.output_path)] == ["1", "2"]


def test_training_reduces_the_errors(configure: Configure):
    config = configure("max_epochs=15")
    train(config)
    losses = [float(row["early_stopping_loss"]) for row in rows_of(config.output_path)]
    assert min(losses) < 0.5 * losses[0]


def test_model_file_says_how_it_was_trained(configure: Configure):
    config = configure("max_epochs=2")
    train(config)
    summary = read_metadata(config.output_path / "last.safetensors")["training"]
    assert (summary["epochs"], summary["steps"], summary["training_frames"]) == (2, 6, 12)


def test_deployed_model_is_the_moving_average(configure: Configure):
    config = configure("max_epochs=1", "ema_decay=0.999")
    train(config)
    deployed = load_model(config.output_path / "last.safetensors")
    from safetensors.torch import load_file

    state = load_file(config.output_path / "state.safetensors")
    assert torch.equal(deployed.embedding, state["average.module.embedding"])
    assert not torch.equal(deployed.embedding, state["model.embedding"])


def test_validation_error_in_metrics_is_that_of_the_best_file(configure: Configure):
    from flashcart.training.testing import test

    config = configure("max_epochs=3")
    outcome = train(config)
    row = rows_of(config.output_path)[outcome.progress.best_epoch - 1]
    errors = test(config)["valid"]
    # float32 sums over a batch in another split differ in the last digits
    assert float(row["valid_forces_rmse[eV/Å]"]) == pytest.approx(errors["forces_rmse[eV/Å]"], rel=1e-5)


def test_double_precision(configure: Configure):
    config = configure("max_epochs=1", "precision=64-true")
    train(config)
    assert read_metadata(config.output_path / "best.safetensors")["dtype"] == "float64"


def test_validate_every_leaves_gaps_but_validates_the_last_epoch(configure: Configure):
    config = configure("max_epochs=5", "validate_every=2")
    train(config)
    validated = [row["epoch"] for row in rows_of(config.output_path) if row["early_stopping_loss"]]
    assert validated == ["2", "4", "5"]


def test_early_stopping_after_patience(configure: Configure):
    # A learning rate of (almost) nothing: no validation improves on the first by more than rounding does.
    config = configure("max_epochs=50", "early_stopping_patience=2", "lr=1e-12", "ema_decay=~")
    outcome = train(config)
    assert outcome.complete == "no improvement in 2 validations"
    assert outcome.progress.epoch < 50
    assert (config.output_path / "state.safetensors").exists()


def test_schedule_that_does_not_fit_is_noted(configure: Configure):
    config = configure("max_epochs=1", "warmup_epochs=10", "decay_epochs=20")
    train(config)
    assert "shortened from 10 and 20 to 0.333 and 0.667 epochs" in (config.output_path / "train.log").read_text()


def test_learning_rate_ends_at_end_factor(configure: Configure):
    config = configure("max_epochs=3", "end_factor=0.01")
    train(config)
    assert float(rows_of(config.output_path)[-1]["lr"]) == pytest.approx(0.02 * 0.01)


def test_weight_norms_are_logged_where_asked_for(configure: Configure):
    config = configure("max_epochs=1", "log_weight_norms=true")
    train(config)
    assert float(rows_of(config.output_path)[0]["norm_embedding"]) > 0.0


def test_stress_is_masked_where_it_is_missing(configure: Configure, data_folder: Path):
    for name in ("train", "valid"):
        frames = ase.io.read(data_folder / f"{name}.xyz", ":")
        for frame in frames[::2]:
            del frame.info["REF_stress"]
        ase.io.write(data_folder / f"{name}.xyz", frames, format="extxyz")
    terms = "[{property: stress, reduce: rmse}, {property: forces, reduce: mse}]"
    config = configure("max_epochs=1", f"train_loss={terms}", f"valid_losses={terms}")
    train(config)
    assert float(rows_of(config.output_path)[0]["valid_stress_rmse[eV/Å^3]"]) > 0.0
    assert "6 of 12 frames have no stress" in (config.output_path / "train.log").read_text()


def test_loss_of_a_property_without_any_label_is_refused(configure: Configure):
    with pytest.raises(DataError, match=r"train_loss has a term of stress, but no frame of .*train\.xyz"):
        train(configure("train_loss={property: stress, reduce: mse}", "stress_key=absent"))


def test_validation_set_of_one_isolated_atom(configure: Configure, data_folder: Path):
    atom = ase.Atoms("Na")
    atom.info["REF_energy"] = -3.0
    ase.io.write(data_folder / "valid.xyz", [atom], format="extxyz")
    config = configure("max_epochs=1", "isolated_atom_energies={Na: -3.0, Cl: -7.0}")
    train(config)
    assert float(rows_of(config.output_path)[0]["valid_energy_per_atom_mae[eV/atom]"]) == 0.0


@pytest.mark.parametrize("override", ["grad_clip_norm=0.1", "optimizer=adamw", "ema_decay=~", "n_workers=1"])
def test_variants_run(configure: Configure, override):
    assert train(configure("max_epochs=1", override)).complete


def test_batches_from_worker_processes_give_the_same_run(configure: Configure):
    configs = [configure("max_epochs=1", f"n_workers={n}", run=f"run{n}") for n in (0, 1)]
    for config in configs:
        train(config)
    first, second = (rows_of(config.output_path)[0] for config in configs)
    assert {**first, "seconds": ""} == {**second, "seconds": ""}


def test_validation_frames_are_split_off(configure: Configure):
    config = configure("max_epochs=1", "valid_path=~", "valid_fraction=0.25")
    train(config)
    assert "9 frames to train on, 3 split off to validate on" in (config.output_path / "train.log").read_text()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("devices=2", "one device"),
        ("n_nodes=2", "one device"),
        ("strategy=ddp", "one device"),
        ("precision=bf16-mixed", "precision: bf16-mixed is not supported"),
        ("predict_compile=true", "predict_compile: true is not supported"),
        ("train_path=~", "train_path: required"),
        ("output_path=~", "output_path: required"),
        ("valid_path=~", "valid_path: required"),
        ("element_agnostic_interaction=false", "needs n_element_interaction_features"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(configure: Configure, override, sentence):
    with pytest.raises(UserError, match=sentence):
        train(configure(override))


def test_output_path_that_is_a_file_is_refused(configure: Configure, data_folder: Path):
    (data_folder / "run").write_text("")
    with pytest.raises(UserError, match=r"output_path: .*run cannot be made"):
        train(configure())


def test_element_of_the_validation_set_must_be_known(configure: Configure, data_folder: Path):
    frames = ase.io.read(data_folder / "valid.xyz", ":")
    frames[1].symbols = "KClNaCl"
    ase.io.write(data_folder / "valid.xyz", frames, format="extxyz")
    with pytest.raises(DataError, match=r"valid\.xyz, frame 1 .*element K"):
        train(configure())


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_non_finite_step_names_frames_and_changes_nothing(configure: Configure, monkeypatch, where):
    """A run that fails in its second epoch keeps model and state of the first."""
    config = configure("max_epochs=1")
    train(config)
    kept = {name: (config.output_path / name).read_bytes() for name in ("best.safetensors", "state.safetensors")}
    true_loss = loop.weighted_loss

    def broken(terms, prediction, batch):
        loss = true_loss(terms, prediction, batch)
        if where == "loss":
            return loss * np.nan
        return loss + (loss - loss.detach()).abs().sqrt()  # adds 0, with an infinite slope

    monkeypatch.setattr(loop, "weighted_loss", broken)
    with pytest.raises(
        NonFiniteLossError, match=rf"the {where} is not finite in step 4 of epoch 2.*frames \d+(, \d+)+"
    ):
        train(configure("max_epochs=3"))
    assert kept == {name: (config.output_path / name).read_bytes() for name in kept}
    assert "is not finite" in (config.output_path / "train.log").read_text()


def test_configuration_errors_of_training_are_config_errors(configure: Configure):
    with pytest.raises(ConfigError):
        train(configure("devices=4"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_saves_and_ends(configure: Configure, monkeypatch, number):
    true_step = loop._step

    def step_then_signal(run, batch, metrics, progress):
        if progress.step == 4:
            os.kill(os.getpid(), number)
        return true_step(run, batch, metrics, progress)

    monkeypatch.setattr(loop, "_step", step_then_signal)
    config = configure("save_every=100")
    outcome = train(config)
    assert outcome.complete is None
    assert (outcome.progress.epoch, outcome.progress.batch, outcome.progress.step) == (1, 2, 5)
    assert (config.output_path / "state.safetensors").exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
