"""One model on any number of ranks: nothing but rounding may change (cases 1 and 2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

# Per number of ranks: processor grids and ways to cut the box.
GRIDS = {
    1: ["processors 1 1 1"],
    2: ["processors 2 1 1", "processors 1 1 2", "comm_style tiled"],
    4: ["processors 1 2 2", "comm_style tiled"],
    8: ["processors 2 2 2"],
}
# Sums over edges in another order, float64; energies of 96 atoms are about 1e4 eV.
RELATIVE_ENERGY, FORCE = 1e-10, 1e-10


def _deck(decks, grids: list[str]) -> str:
    text = ""
    for number, grid in enumerate(grids):
        text += decks.set_up("water.data", before=grid)
        if "tiled" in grid:
            text += "balance 1.01 rcb\n"
        text += decks.measure(f"start{number}") + decks.measure(f"moved{number}", steps=5)
    return text


@pytest.fixture(scope="module")
def run_ranks(tmp_path_factory, make_model: Callable[..., Path], water_box: Atoms, decks):
    """Return a function that runs everything of this module on a number of ranks, once."""
    done = {}

    def run(ranks: int):
        if ranks not in done:
            done[ranks] = lammps = decks.prepare(tmp_path_factory.mktemp(f"ranks{ranks}"), make_model, water_box)
            decks.write_data(lammps.folder / "slab.data", _slab())
            decks.write_data(lammps.folder / "hydrogen.data", water_box[water_box.numbers == 1])
            parts = (_deck(decks, GRIDS[ranks]), _slab_deck(decks, ranks), _null_deck(decks))
            lammps.run_well("".join(parts), ranks=ranks)
        return done[ranks]

    return run


def _slab() -> Atoms:
    """Atoms at x < 13 of a box of 30 Å: with two ranks along x one of them owns nothing."""
    rng = np.random.default_rng(5)
    places = np.stack(np.meshgrid(range(4), range(4), range(4), indexing="ij"), -1).reshape(-1, 3)
    positions = places * (3.0, 3.2, 3.2) + 1.0 + rng.normal(scale=0.2, size=(64, 3))
    return Atoms("OHHO" * 16, positions=positions, cell=[30, 13, 13], pbc=True)


def _slab_deck(decks, ranks: int) -> str:
    grid = {1: "1 1 1", 2: "2 1 1", 4: "4 1 1", 8: "8 1 1"}[ranks]
    text = decks.set_up("slab.data", before=f"processors {grid}")
    text += "neigh_modify every 100 delay 100 check no\n" + decks.measure("slab_left", steps=5)
    text += "displace_atoms all move 15.5 0 0\n" + decks.measure("slab_right", steps=5)
    return text


def _null_deck(decks) -> str:
    """Oxygen is not the model's: within the cutoff of hydrogen, but not seen."""
    text = decks.set_up("water.data", elements="H NULL") + decks.measure("null")
    return text + decks.set_up("hydrogen.data") + decks.measure("hydrogen")


def _assert_equal(found, expected) -> None:
    assert found.energy == pytest.approx(expected.energy, rel=RELATIVE_ENERGY)
    np.testing.assert_allclose(found.forces, expected.forces, atol=FORCE, rtol=1e-10)
    np.testing.assert_allclose(found.energies, expected.energies, rtol=RELATIVE_ENERGY)
    # Pressures of 1e4 to 1e5 bar, per-atom stress of 1e6 bar Å^3: the same relative rounding.
    np.testing.assert_allclose(found.pressures, expected.pressures, rtol=1e-9, atol=1e-5)
    np.testing.assert_allclose(found.stresses, expected.stresses, rtol=1e-9, atol=1e-3)


CASES = [(ranks, number) for ranks in (2, 4) for number in range(len(GRIDS[ranks]))]
CASES.append(pytest.param(8, 0, marks=pytest.mark.slow))  # eight imports of torch


@pytest.mark.parametrize(("ranks", "number"), CASES)
@pytest.mark.parametrize("moment", ["start", "moved"])
def test_any_processor_grid_gives_the_result_of_one_rank(run_ranks, ranks: int, number: int, moment: str) -> None:
    _assert_equal(run_ranks(ranks).read(f"{moment}{number}"), run_ranks(1).read(f"{moment}0"))


def test_signal_is_there(run_ranks) -> None:
    start, moved = (run_ranks(1).read(name) for name in ("start0", "moved0"))
    assert np.abs(start.forces).max() > 0.1
    assert np.abs(start.pressures).min() > 1.0
    assert np.abs(start.stresses).max() > 100.0
    assert np.ptp(start.energies[::3]) > 1e-3
    assert np.abs(moved.forces - start.forces).max() > 1e-4


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("moment", ["slab_left", "slab_right"])
def test_a_rank_may_own_no_atom(run_ranks, ranks: int, moment: str) -> None:
    _assert_equal(run_ranks(ranks).read(moment), run_ranks(1).read(moment))


def test_moving_the_slab_to_the_other_rank_keeps_the_energy(run_ranks) -> None:
    left, right = (run_ranks(2).read(name) for name in ("slab_left", "slab_right"))
    assert np.abs(left.forces).max() > 0.1
    # Five steps of motion lie between the two.
    assert right.energy == pytest.approx(left.energy, rel=1e-3)


def test_per_atom_values_sum_to_the_global_ones(run_ranks) -> None:
    found = run_ranks(2).read("start0")
    assert found.energies.sum() == pytest.approx(found.energy, rel=1e-12)
    volume = 9.8 * 9.9 * 10.1
    np.testing.assert_allclose(-found.stresses.sum(0) / volume, found.pressures, rtol=1e-9, atol=1e-5)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_atoms_without_element_are_not_seen(run_ranks, water_box: Atoms, ranks: int) -> None:
    found, expected = run_ranks(ranks).read("null"), run_ranks(1).read("hydrogen")
    hydrogens = water_box.numbers == 1
    assert found.energy == pytest.approx(expected.energy, rel=RELATIVE_ENERGY)
    np.testing.assert_allclose(found.forces[hydrogens], expected.forces, atol=FORCE)
    assert not found.forces[~hydrogens].any()
    assert np.abs(expected.forces).max() > 0.1
