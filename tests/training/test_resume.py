"""Runs that are continued: bit for bit, or not at all."""

from __future__ import annotations

import csv
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import ase.io
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from flashcart.config import Config
from flashcart.errors import UserError
from flashcart.training import loop
from flashcart.training.loop import train

Configure = Callable[..., Config]


def assert_same_run(first: Path, second: Path) -> None:
    """Same state, same models, same metrics, bit for bit; only times may differ."""
    for name in ("state.safetensors", "best.safetensors", "last.safetensors"):
        one, other = load_file(first / name), load_file(second / name)
        assert one.keys() == other.keys()
        assert [key for key in one if not torch.equal(one[key], other[key])] == []
    rows = []
    for folder in (first, second):
        with (folder / "metrics.csv").open(newline="", encoding="utf-8") as file:
            rows.append([{**row, "seconds": ""} for row in csv.DictReader(file)])
    assert rows[0] == rows[1]


def stop_at_step(monkeypatch, step: int) -> None:
    """Send SIGTERM before the given optimizer step (counted from 0) of the next run."""
    true_step = loop._step

    def stopping(run, batch, metrics, progress):
        if progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return true_step(run, batch, metrics, progress)

    monkeypatch.setattr(loop, "_step", stopping)


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("step", [4, 5])  # in the middle of the second epoch; after its last step, before validation
def test_stopped_and_continued_run_is_bit_identical(configure: Configure, monkeypatch, step, optimizer):
    whole, parts = (configure(f"optimizer={optimizer}", run=run) for run in ("whole", "parts"))
    train(whole)
    with monkeypatch.context() as patch:
        stop_at_step(patch, step)
        assert train(parts).complete is None
    train(parts)
    assert_same_run(whole.output_path, parts.output_path)


def test_run_that_was_killed_is_bit_identical_from_its_last_checkpoint(configure: Configure, monkeypatch):
    whole, parts = (configure("save_every=2", run=run) for run in ("whole", "parts"))
    train(whole)
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_step", _killed_at(loop._step, 10))  # in the fourth epoch, two after the checkpoint's
        with pytest.raises(KeyboardInterrupt):
            train(parts)
    train(parts)
    assert_same_run(whole.output_path, parts.output_path)


def _killed_at(step_function, step: int):
    def killed(run, batch, metrics, progress):
        if progress.step == step:
            raise KeyboardInterrupt
        return step_function(run, batch, metrics, progress)

    return killed


def test_run_killed_before_its_first_checkpoint_leaves_no_duplicate_rows(configure: Configure, monkeypatch):
    config = configure("save_every=100")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "_step", _killed_at(loop._step, 7))  # in the third epoch
        with pytest.raises(KeyboardInterrupt):
            train(config)
    train(config)
    with (config.output_path / "metrics.csv").open(newline="", encoding="utf-8") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["1", "2", "3", "4"]


def test_continuing_is_announced(configure: Configure, caplog):
    train(configure("max_epochs=2"))
    with caplog.at_level(logging.INFO, logger="flashcart"):
        train(configure("max_epochs=3", "lr=0.01"))
    assert "after epoch 2, step 6" in caplog.text
    assert "max_epochs was 2, is now 3" in caplog.text
    assert "lr was 0.02, is now 0.01" in caplog.text


def test_complete_run_says_so_and_changes_nothing(configure: Configure, caplog):
    config = configure("max_epochs=2")
    train(config)
    kept = {path.name: path.read_bytes() for path in config.output_path.glob("*.safetensors")}
    with caplog.at_level(logging.INFO, logger="flashcart"):
        assert train(config).complete == "all 2 epochs are done"
    assert "all 2 epochs are done" in caplog.text
    assert kept == {path.name: path.read_bytes() for path in config.output_path.glob("*.safetensors")}


def _add_frame(folder: Path) -> None:
    frames = ase.io.read(folder / "train.xyz", ":")
    ase.io.write(folder / "train.xyz", [*frames, frames[0]], format="extxyz")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("n_hidden_feats=6", "n_hidden_feats was 4, is now 6"),
        ("elements=[Na, Cl]", "elements was .Cl, Na., is now .Na, Cl."),
        ("isolated_atom_energies={Na: -1.0, Cl: -2.0}", "offsets was "),
        ("precision=64-true", "precision was float32, is now float64"),
        ("optimizer=adamw", "optimizer was muon, is now adamw"),
        ("data", "training data was 12 frames, .* is now 13 frames"),
    ],
)
def test_another_model_or_other_data_are_refused_before_anything_is_written(
    configure: Configure, data_folder: Path, change, sentence
):
    config = configure("max_epochs=1", "elements=[Cl, Na]")
    train(config)
    kept = {path.name: path.read_bytes() for path in config.output_path.iterdir() if path.name != "train.log"}
    if change == "data":
        _add_frame(data_folder)
    with pytest.raises(UserError, match=sentence):
        train(configure("max_epochs=2", "elements=[Cl, Na]", *([] if change == "data" else [change])))
    assert kept == {path.name: path.read_bytes() for path in config.output_path.iterdir() if path.name != "train.log"}


def test_same_data_in_another_place_is_accepted(configure: Configure, data_folder: Path):
    train(configure("max_epochs=1"))
    (data_folder / "train.xyz").rename(data_folder / "moved.xyz")
    assert train(configure("max_epochs=2", f"train_path={data_folder}/moved.xyz")).progress.epoch == 2


@pytest.mark.parametrize("damage", ["truncated", "foreign", "newer"])
def test_state_that_cannot_be_read_is_refused(configure: Configure, damage):
    config = configure("max_epochs=1")
    train(config)
    path = config.output_path / "state.safetensors"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "foreign":
        save_file({"a": torch.zeros(1)}, path)
    else:
        save_file({"a": torch.zeros(1)}, path, metadata={"flashcart_state": '{"state_format_version": 99}'})
    with pytest.raises(UserError, match="state format 99" if damage == "newer" else "not a readable training state"):
        train(config)


def test_state_of_another_version_of_the_model_is_refused(configure: Configure):
    config = configure("max_epochs=1")
    train(config)
    path = config.output_path / "state.safetensors"
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors["model.renamed"] = tensors.pop("model.embedding")
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(UserError, match=r"written by FlashCart .* and does not fit the model of this version"):
        train(configure("max_epochs=2"))


def test_deterministic_runs_are_allowed(configure: Configure):
    try:
        assert train(configure("max_epochs=1", "deterministic=true")).complete
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
