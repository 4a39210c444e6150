"""A small labelled data set and a configuration that trains on it in a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ase
import ase.io
import numpy as np
import pytest
from ase.calculators.morse import MorsePotential

from flashcart.config import Config, load_config

TINY_MODEL = (
    "r_max=3.0",
    "n_hidden_feats=4",
    "l_max_hidden_feats=1",
    "l_max_edge_attrs=1",
    "correlation=1",
    "n_radial=4",
    "hidden_radial=[8]",
    "hidden_readout=[8]",
)
TINY_RUN = (
    *("max_epochs=4", "warmup_epochs=1", "decay_epochs=1", "save_every=1", "train_batch_size=4", "eval_batch_size=4"),
    *("lr=0.02", "device=cpu", "dynamic_batching=false", "ema_decay=0.9"),
)


def crystals(n_frames: int, seed: int) -> list[ase.Atoms]:
    """Return periodic frames of 4 atoms of two elements with energies, forces and stress of a Morse potential."""
    rng = np.random.default_rng(seed)
    frames = []
    for _ in range(n_frames):
        cell = 3.4 * (np.eye(3) + 0.05 * rng.standard_normal((3, 3)))
        scaled = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]]) + 0.03 * rng.standard_normal((4, 3))
        atoms = ase.Atoms("NaClNaCl", scaled_positions=scaled, cell=cell, pbc=True)
        atoms.calc = MorsePotential(epsilon=0.3, r0=2.4, rho0=4.0, rcut1=2.5, rcut2=3.0)
        atoms.info["REF_energy"] = atoms.get_potential_energy() - 20.0
        atoms.arrays["REF_forces"] = atoms.get_forces()
        atoms.info["REF_stress"] = atoms.get_stress(voigt=False)
        atoms.calc = None
        frames.append(atoms)
    return frames


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    """Folder with train.xyz (12 frames), valid.xyz and test.xyz (4 frames each)."""
    for name, n_frames, seed in (("train", 12, 1), ("valid", 4, 2), ("test", 4, 3)):
        ase.io.write(tmp_path / f"{name}.xyz", crystals(n_frames, seed), format="extxyz")
    return tmp_path


@pytest.fixture
def configure(data_folder: Path) -> Callable[..., Config]:
    """Return a function that gives the tiny run's configuration with overrides, in the run folder `run`."""

    def make(*overrides: str, run: str = "run") -> Config:
        paths = [f"{name}_path={data_folder / name}.xyz" for name in ("train", "valid", "test")]
        return load_config(None, [*paths, f"output_path={data_folder / run}", *TINY_MODEL, *TINY_RUN, *overrides])

    return make
