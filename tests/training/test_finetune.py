"""Starting from a trained model."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import ase.io
import numpy as np
import pytest
import torch

from flashcart.config import Config
from flashcart.deploy import load_model
from flashcart.errors import ConfigError, DataError, ModelFileError
from flashcart.training.loop import train

Configure = Callable[..., Config]


def shift_energies(folder: Path, shift: dict[str, float]) -> None:
    """Give every frame another energy reference: so many eV per atom of each element."""
    for name in ("train", "valid"):
        frames = ase.io.read(folder / f"{name}.xyz", ":")
        for frame in frames:
            frame.info["REF_energy"] += sum(shift[symbol] for symbol in frame.get_chemical_symbols())
        ase.io.write(folder / f"{name}.xyz", frames, format="extxyz")


def first_energy_error(folder: Path) -> float:
    with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
        return float(next(csv.DictReader(file))["valid_energy_per_atom_mae[eV/atom]"])


def test_another_energy_reference_moves_only_the_offsets(configure: Configure, data_folder: Path):
    first = configure()
    train(first)
    shift_energies(data_folder, {"Na": 100.0, "Cl": -350.0})
    second = configure("max_epochs=1", "lr=1e-9", f"checkpoint={first.output_path}/best.safetensors", run="second")
    train(second)
    old, new = (load_model(config.output_path / "best.safetensors") for config in (first, second))
    assert torch.allclose(old.embedding, new.embedding, atol=1e-6)
    assert torch.equal(old.scales, new.scales)
    # All frames are NaCl: only the sum of the two offsets is determined, which moves by 100 - 350 and the mean error.
    assert float((new.offsets - old.offsets).sum()) == pytest.approx(-250.0, abs=0.5)
    assert first_energy_error(second.output_path) < 0.5
    log = (second.output_path / "train.log").read_text(encoding="utf-8")
    assert "starting from" in log
    assert "energy offsets in eV, refitted to the training data: Na " in log


def test_offsets_are_kept_where_they_are_not_to_be_fitted(configure: Configure, data_folder: Path):
    first = configure("max_epochs=1")
    train(first)
    start = f"checkpoint={first.output_path}/best.safetensors"
    second = configure("max_epochs=1", start, "fit_atomic_shifts=false", run="second")
    train(second)
    old, new = (load_model(config.output_path / "best.safetensors") for config in (first, second))
    assert torch.equal(old.offsets, new.offsets)


def test_fine_tuning_run_is_continued_from_its_own_state(configure: Configure):
    first = configure("max_epochs=1")
    train(first)
    start = f"checkpoint={first.output_path}/best.safetensors"
    train(configure("max_epochs=1", start, run="second"))
    assert train(configure("max_epochs=2", start, run="second")).progress.step == 6


def test_model_keys_must_be_those_of_the_checkpoint(configure: Configure):
    first = configure("max_epochs=1")
    train(first)
    start = f"checkpoint={first.output_path}/best.safetensors"
    with pytest.raises(ConfigError, match=r"n_radial: is 5 here but 4 in .*best\.safetensors"):
        train(configure(start, "n_radial=5", run="second"))


def test_element_that_the_checkpoint_does_not_know_is_refused(configure: Configure, data_folder: Path):
    first = configure("max_epochs=1")
    train(first)
    frames = ase.io.read(data_folder / "train.xyz", ":")
    frames[2].symbols = "KClNaCl"
    ase.io.write(data_folder / "train.xyz", frames, format="extxyz")
    with pytest.raises(DataError, match=r"frame 2 .*element K"):
        train(configure(f"checkpoint={first.output_path}/best.safetensors", run="second"))


def test_missing_checkpoint_is_refused(configure: Configure):
    with pytest.raises(ModelFileError, match="no such model file"):
        train(configure("checkpoint=nothing.safetensors"))


def test_double_precision_from_a_single_precision_checkpoint(configure: Configure):
    first = configure("max_epochs=1")
    train(first)
    second = configure(
        "max_epochs=1", f"checkpoint={first.output_path}/best.safetensors", "precision=64-true", run="second"
    )
    train(second)
    assert load_model(second.output_path / "best.safetensors").embedding.dtype == torch.float64
    assert np.isfinite(first_energy_error(second.output_path))
