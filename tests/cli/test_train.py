"""flashcart-train and flashcart-test as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ase.io
import pytest
from ase.build import molecule
from ase.calculators.emt import EMT

from flashcart.cli import test as cli_test
from flashcart.cli import train as cli_train

YAML = """
train_path: train.xyz
valid_path: train.xyz
test_path: train.xyz
output_path: läufe mit leerzeichen
r_max: 3.0
n_hidden_feats: 4
l_max_hidden_feats: 1
l_max_edge_attrs: 1
correlation: 1
hidden_radial: [8]
hidden_readout: [8]
device: cpu
train_batch_size: 2
max_epochs: 2
"""


@pytest.fixture
def run_yaml(tmp_path: Path) -> Path:
    """A configuration beside its data, in a folder with a space in its name."""
    folder = tmp_path / "ein ordner"
    folder.mkdir()
    frames = []
    for number in range(4):
        atoms = molecule("H2O")
        atoms.rattle(0.05, seed=number)
        atoms.calc = EMT()
        atoms.info["REF_energy"] = atoms.get_potential_energy()
        atoms.arrays["REF_forces"] = atoms.get_forces()
        atoms.calc = None
        frames.append(atoms)
    ase.io.write(folder / "train.xyz", frames, format="extxyz")
    (folder / "run.yaml").write_text(YAML, encoding="utf-8")
    return folder / "run.yaml"


def test_train_then_test_from_another_folder(run_yaml: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli_train.main([str(run_yaml)]) == 0
    assert cli_test.main([str(run_yaml)]) == 0
    captured = capsys.readouterr()
    assert "epoch 2/2: loss" in captured.out
    assert "energy per atom rmse" in captured.out
    assert captured.err == ""
    folder = run_yaml.parent / "läufe mit leerzeichen"
    assert (folder / "best.safetensors").exists()
    assert (folder / "test_metrics.json").exists()


def test_error_stands_in_the_log_too(run_yaml: Path, capsys):
    assert cli_train.main([str(run_yaml), "train_loss={property: stress, reduce: mse}"]) == 2
    sentence = capsys.readouterr().err.removeprefix("flashcart-train: ").strip()
    assert "no frame of" in sentence
    assert sentence in (run_yaml.parent / "läufe mit leerzeichen" / "train.log").read_text(encoding="utf-8")


def test_terminated_process_saves_ends_and_can_be_continued(run_yaml: Path):
    command = [sys.executable, "-m", "flashcart.cli.train", str(run_yaml), "save_every=1000"]
    log = run_yaml.parent / "läufe mit leerzeichen" / "train.log"
    process = subprocess.Popen(
        [*command, "max_epochs=100000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for _ in range(600):
        if log.exists() and "epoch 2/" in log.read_text(encoding="utf-8"):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped by SIGTERM" in out
    assert err == ""
    assert (log.parent / "state.json").exists()
    done = subprocess.run([*command, "max_epochs=3"], capture_output=True, text=True, timeout=120)
    assert "continuing the run" in done.stdout or "are done" in done.stdout
    assert done.returncode == 0


def test_a_signal_at_the_very_end_of_an_epoch_loses_nothing(run_yaml: Path, monkeypatch):
    from flashcart.training import loop

    save = loop._save

    def save_then_signal(run, progress, values):
        save(run, progress, values)
        if progress.epoch == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop, "_save", save_then_signal)
    assert cli_train.main([str(run_yaml), "save_every=1000", "max_epochs=100"]) == 1
    folder = run_yaml.parent / "läufe mit leerzeichen"
    assert '"epoch": 2' in (folder / "state.json").read_text(encoding="utf-8")
