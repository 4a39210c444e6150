"""Tests of the stored example data: contents, labels, splits and size."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import ase.io
import numpy as np
import pytest

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
WATER = {"water_train": 185, "water_valid": 51, "water_test": 51}
CRYSTAL = {"crystal_train": 40, "crystal_test": 10}
MAX_BYTES = 3_000_000

# tblite's total force vanishes to about 1e-13 eV/A; what is left is the rounding of each component to 1e-6 eV/A:
# at most 0.5e-6 times the number of atoms.
FORCE_SUM_PER_ATOM = 0.5e-6 + 1e-12
# Neighbouring frames of a trajectory: a hundredth of an Angstrom would be one or two integration steps, nearly the
# same environment twice. At 300 K oxygen moves about 0.1 A in 24 fs, so that 0.05 A tells copies from new frames.
MIN_RMS_STEP = 0.05
# Label reproduction: the SCF of a stored frame started from the density of the frame before it, a fresh one does not;
# at accuracy 0.1 the two agree within about 1e-5 eV and 1e-4 eV/A.
ENERGY_TOL, FORCE_TOL, STRESS_TOL = 1e-4, 1e-3, 1e-5


@cache
def frames(name: str) -> list:
    return ase.io.read(DATA / f"{name}.extxyz", ":")


def stress(atoms) -> np.ndarray:
    return np.asarray(atoms.info["REF_stress"], dtype=float).reshape(3, 3)


@pytest.mark.parametrize(("name", "count"), [*WATER.items(), *CRYSTAL.items()])
def test_number_of_frames(name, count):
    assert len(frames(name)) == count


@pytest.mark.parametrize("name", [*WATER, *CRYSTAL])
def test_keys_and_periodicity(name):
    for atoms in frames(name):
        assert {"REF_energy", "REF_stress", "trajectory", "density"} <= set(atoms.info)
        assert set(atoms.arrays) == {"numbers", "positions", "REF_forces"}
        assert atoms.calc is None
        assert atoms.pbc.all()
        assert np.isfinite(atoms.info["REF_energy"])
        assert np.isfinite(atoms.arrays["REF_forces"]).all()


@pytest.mark.parametrize("name", WATER)
def test_water_molecules(name):
    for atoms in frames(name):
        assert "".join(atoms.symbols) == "OHH" * 32
        assert atoms.info["temperature"] > 0
        for hydrogen in (1, 2):
            bonds = np.linalg.norm(atoms.positions[hydrogen::3] - atoms.positions[::3], axis=1)
            assert bonds.min() > 0.6
            assert bonds.max() < 1.6


@pytest.mark.parametrize("name", WATER)
def test_water_density_is_that_of_the_cell(name):
    for atoms in frames(name):
        density = atoms.get_masses().sum() * 1.66053907 / atoms.get_volume()
        rattled = not np.allclose(atoms.cell.array, np.diag(atoms.cell.lengths()))
        assert density == pytest.approx(atoms.info["density"], rel=0.07 if rattled else 1e-3)


@pytest.mark.parametrize("name", CRYSTAL)
def test_crystal_composition(name):
    sizes = set()
    for atoms in frames(name):
        assert set(atoms.symbols) == {"Na", "Cl"}
        assert (atoms.symbols == "Na").sum() == (atoms.symbols == "Cl").sum()
        sizes.add(len(atoms))
    assert sizes == {62, 64}


def test_water_splits_share_no_trajectory():
    members = [{str(a.info["trajectory"]) for a in frames(name)} for name in WATER]
    assert sum(map(len, members)) == len(set.union(*members)) == 15


@pytest.mark.parametrize("name", WATER)
def test_several_temperatures_and_densities(name):
    assert len({a.info["temperature"] for a in frames(name)}) >= 3
    assert len({a.info["density"] for a in frames(name)}) >= 3


def test_training_set_reaches_high_temperature():
    assert max(a.info["temperature"] for a in frames("water_train")) >= 600


@pytest.mark.parametrize("name", [*WATER, *CRYSTAL])
def test_forces_sum_to_zero(name):
    for atoms in frames(name):
        assert np.abs(atoms.arrays["REF_forces"].sum(axis=0)).max() < FORCE_SUM_PER_ATOM * len(atoms)


@pytest.mark.parametrize("name", [*WATER, *CRYSTAL])
def test_stress_is_symmetric_and_of_plausible_size(name):
    for atoms in frames(name):
        assert np.array_equal(stress(atoms), stress(atoms).T)
        assert 0 < np.abs(stress(atoms)).max() < 0.2


@pytest.mark.parametrize("name", WATER)
def test_neighbouring_water_frames_differ(name):
    for before, after in zip(frames(name), frames(name)[1:], strict=False):
        if before.info["trajectory"] == after.info["trajectory"]:
            step = after.positions - before.positions
            assert np.sqrt((step**2).sum(axis=1).mean()) > MIN_RMS_STEP


def test_no_two_frames_have_the_same_energy():
    for names in (WATER, CRYSTAL):
        energies = [a.info["REF_energy"] for name in names for a in frames(name)]
        assert len(set(energies)) == len(energies)


def test_folder_is_small():
    assert sum(p.stat().st_size for p in DATA.glob("*") if p.is_file()) < MAX_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["water_test", "crystal_test"])
def test_label_is_reproduced_by_the_engine(name):
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tblite = pytest.importorskip("tblite.ase", reason="the engine of the example data is an optional dependency")
    atoms = frames(name)[1].copy()
    calculator = tblite.TBLite(method="GFN1-xTB", accuracy=0.1, electronic_temperature=300.0, verbosity=0)
    calculator.calculate(atoms, ["energy", "forces", "stress"])
    results = calculator.results
    assert results["energy"] == pytest.approx(atoms.info["REF_energy"], abs=ENERGY_TOL)
    assert np.abs(results["forces"] - atoms.arrays["REF_forces"]).max() < FORCE_TOL
    expected = stress(atoms)[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]
    assert np.abs(np.asarray(results["stress"]) - expected).max() < STRESS_TOL
