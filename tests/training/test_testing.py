"""What flashcart-test reports and writes."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable
from pathlib import Path

import ase.io
import numpy as np
import pytest

from flashcart.config import Config
from flashcart.data.dataset import LabelKeys, read_dataset
from flashcart.errors import ConfigError, ModelFileError
from flashcart.training.loop import train
from flashcart.training.testing import test as run_test

Configure = Callable[..., Config]


@pytest.fixture
def trained(configure: Configure) -> Config:
    config = configure("max_epochs=1")
    train(config)
    return config


def test_errors_are_those_of_the_written_predictions(trained: Config):
    errors = run_test(trained)
    assert errors.keys() == {"valid", "test"}
    frames = ase.io.read(trained.output_path / "test_predictions.extxyz", ":")
    energies = [(f.info["flashcart_energy"] - f.info["REF_energy"]) / len(f) for f in frames]
    forces = np.concatenate([f.arrays["flashcart_forces"] - f.arrays["REF_forces"] for f in frames])
    stress = np.array([f.info["flashcart_stress"] - f.info["REF_stress"] for f in frames])
    # extended XYZ holds 8 decimals
    assert errors["test"]["energy_per_atom_mae[eV/atom]"] == pytest.approx(np.abs(energies).mean(), abs=2e-8)
    assert errors["test"]["forces_rmse[eV/Å]"] == pytest.approx(np.sqrt((forces**2).mean()), abs=2e-8)
    assert errors["test"]["forces_maxe[eV/Å]"] == pytest.approx(np.abs(forces).max(), abs=2e-8)
    assert errors["test"]["stress_rmse[eV/Å^3]"] == pytest.approx(np.sqrt((stress**2).mean()), abs=2e-8)


def test_files_for_machines_hold_the_same_numbers(trained: Config):
    errors = run_test(trained)
    document = json.loads((trained.output_path / "test_metrics.json").read_text(encoding="utf-8"))
    assert document["errors"] == errors
    with (trained.output_path / "valid_structures.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["frame"] for row in rows] == ["0", "1", "2", "3"]
    mean = np.mean([abs(float(row["energy_error[eV/atom]"])) for row in rows])
    assert errors["valid"]["energy_per_atom_mae[eV/atom]"] == pytest.approx(mean, rel=1e-12)


def test_table_names_sets_and_units(trained: Config, caplog):
    with caplog.at_level(logging.INFO, logger="flashcart"):
        run_test(trained)
    table = caplog.messages[-1]
    assert "valid" in table.splitlines()[1]
    assert "meV/atom" in table
    assert "stress rmse" in table


def test_parity_plot_is_written_where_matplotlib_is_installed(trained: Config):
    pytest.importorskip("matplotlib", reason="parity plots need matplotlib")
    run_test(trained)
    assert (trained.output_path / "test_parity.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_a_line_says_so(trained: Config, caplog, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with caplog.at_level(logging.INFO, logger="flashcart"):
        run_test(trained)
    assert "matplotlib is not installed" in caplog.text
    assert not (trained.output_path / "test_parity.png").exists()


def test_written_predictions_can_be_read_as_data(trained: Config):
    run_test(trained)
    path = trained.output_path / "test_predictions.extxyz"
    keys = LabelKeys(energy_key="flashcart_energy", forces_key="flashcart_forces", stress_key="flashcart_stress")
    assert len(read_dataset(path, keys, r_max=3.0)) == 4


def test_sets_without_stress_or_forces_are_evaluated_on_what_they_have(trained: Config, data_folder: Path):
    frames = ase.io.read(data_folder / "test.xyz", ":")
    for frame in frames:
        del frame.info["REF_stress"], frame.arrays["REF_forces"]
    ase.io.write(data_folder / "test.xyz", frames, format="extxyz")
    from dataclasses import replace

    errors = run_test(replace(trained, allow_missing_forces=True))
    assert {name.partition("_")[0] for name in errors["test"]} == {"energy"}
    assert {name.partition("_")[0] for name in errors["valid"]} == {"energy", "forces", "stress"}


def test_another_checkpoint_is_evaluated_where_given(configure: Configure, trained: Config):
    last = trained.output_path / "last.safetensors"
    run_test(configure(f"checkpoint={last}", run="elsewhere"))
    document = json.loads((trained.output_path.parent / "elsewhere" / "test_metrics.json").read_text())
    assert document["checkpoint"] == str(last)


def test_model_defines_the_cutoff(configure: Configure, trained: Config):
    assert run_test(trained) == run_test(configure("r_max=2.5"))


def test_split_off_frames_are_the_validation_set(configure: Configure):
    config = configure("max_epochs=1", "valid_path=~", "valid_fraction=0.25")
    train(config)
    run_test(config)
    assert len(ase.io.read(config.output_path / "valid_predictions.extxyz", ":")) == 3


def test_nothing_to_evaluate_is_an_error(configure: Configure, trained: Config):
    with pytest.raises(ConfigError, match="no data to evaluate"):
        run_test(configure("test_path=~", "valid_path=~"))


def test_missing_model_is_an_error_and_makes_no_folder(configure: Configure, data_folder: Path):
    with pytest.raises(ModelFileError, match=r"best\.safetensors: no such model file"):
        run_test(configure(run="empty"))
    assert not (data_folder / "empty").exists()
