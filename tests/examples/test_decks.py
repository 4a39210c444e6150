"""The decks in examples/lammps run, and examples/demo.py reads what they leave."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flashcart_demo", ROOT / "examples" / "demo.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(demo: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few steps of both decks with random weights."""
    import torch
    from ase.io import read, write

    from flashcart.deploy import save_model
    from flashcart.model import FlashCart, ModelConfig

    folder = tmp_path_factory.mktemp("decks")
    config = ModelConfig(("H", "O"), 3.0, n_hidden_feats=2, l_max_hidden_feats=0, l_max_edge_attrs=1, correlation=1)
    save_model(folder / "best.safetensors", FlashCart(config, dtype=torch.float64))
    frame = read(ROOT / "examples" / "data" / "water_test.extxyz", 0)
    write(folder / "water.data", frame, format="lammps-data", specorder=demo.ELEMENTS, masses=True)
    decks = ROOT / "examples" / "lammps"
    demo.lammps(folder, decks / "equilibrate.in", "warm", 1, data="water.data", target="warm.data", steps=3)
    demo.lammps(folder, decks / "nve.in", "nve", 1, data="warm.data", name="nve", steps=10)
    return folder


def test_the_demonstration_reads_what_the_decks_leave(demo: ModuleType, folder: Path) -> None:
    found = demo.read_run(folder, "nve")
    assert found.thermo.shape == (3, 6)
    np.testing.assert_allclose(found.thermo[:, 0], [0, 5, 10])
    np.testing.assert_allclose(found.thermo[:, 1], [0, 0.0025, 0.005])
    assert len(found.first) == 96
    assert found.first.get_chemical_formula() == "H64O32"
    assert np.abs(found.forces).max() > 1e-3
    assert found.seconds_per_step > 0


def test_lammps_equals_ase_in_the_demonstration(demo: ModuleType, folder: Path) -> None:
    run = demo.read_run(folder, "nve")
    checks = demo.compare(folder, dict.fromkeys(("small_1", "small_2", "large_1", "large_2"), run))
    differences = [check for check in checks if "difference" in check.name]
    assert len(differences) == 6
    assert all(check.passed for check in differences)


def test_a_check_beyond_its_limit_fails(demo: ModuleType) -> None:
    assert demo.Check("x", -2.0, "eV", 1.0).passed is False
    assert demo.Check("x", 2.0, "eV").passed is True


def test_drift_is_the_slope_of_the_total_energy_per_atom(demo: ModuleType, folder: Path) -> None:
    run = demo.read_run(folder, "nve")
    thermo = np.zeros((5, 6))
    thermo[:, 1], thermo[:, 4] = np.arange(5), 96 * 0.002 * np.arange(5)
    assert demo.drift(demo.Run(thermo, run.first, 1.0)) == pytest.approx(2.0)
