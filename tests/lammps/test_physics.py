"""One rank: LAMMPS against ASE, virial, small cells, isolated atoms, hybrid styles, units (cases 3, 4, 6, 9, 12)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

STRAIN = 1e-4
MODES = {"xx": (0, 0), "yy": (1, 1), "zz": (2, 2), "xy": (0, 1), "xz": (0, 2), "yz": (1, 2)}
BAR = 1.6021765e6  # one eV/Å^3 in LAMMPS's metal units
# One eV and one Å in each unit system; LAMMPS's own constants have 7 digits.
UNITS = {
    "metal": (1.0, 1.0),
    "real": (23.06055, 1.0),
    "electron": (1 / 27.2113845, 1.88972612),
    "si": (1.60217653e-19, 1e-10),
}
# Positions may be shifted by whole cells and edges added in another order, float64.
ENERGY, FORCE = 1e-9, 1e-8


def _boxes(water: Atoms) -> dict[str, Atoms]:
    boxes = {"alone": _in_vacuum("O", [[0, 0, 0]]), "apart": _in_vacuum("OH", [[0, 0, 0], [8, 0, 0]])}
    molecule = np.array([[0, 0, 0], [0.76, 0.59, 0], [-0.76, 0.59, 0]])
    for gap in (0.0, 1.0, 9.0):  # Å, a hydrogen taken away along its bond
        boxes[f"losing_{gap:g}"] = _in_vacuum("OHH", molecule + np.array([[0, 0, 0], [gap, 0, 0], [0, 0, 0]]))
    for shift in (0.0, 14.6):  # Å, the second one across the boundary
        boxes[f"carried_{shift:g}"] = _in_vacuum("OHH", molecule + np.array([shift, 0, 0]))
        boxes[f"carried_{shift:g}"].wrap()
    boxes["primitive"] = Atoms("OH", positions=[[0.1, 0, 0], [1.0, 0.8, 1.1]], pbc=True)
    boxes["primitive"].cell = [[2.6, 0, 0], [0.7, 2.5, 0], [-0.4, 0.6, 2.7]]
    for number in (2, 3, 4):
        boxes[f"primitive_{number}"] = boxes["primitive"].repeat(number)
    for (name, (row, column)), sign in itertools.product(MODES.items(), (1, -1)):
        deformation = np.eye(3)
        deformation[row, column] += sign * STRAIN
        strained = water.copy()
        strained.set_cell(water.cell.array @ deformation.T, scale_atoms=True)
        boxes[f"strain_{name}_{sign:+d}"] = strained
    squeezed = water.copy()
    squeezed.set_cell(water.cell.array * 0.97, scale_atoms=True)
    return boxes | {"squeezed": squeezed, "hydrogen": water[water.numbers == 1]}


def _in_vacuum(symbols: str, positions: object) -> Atoms:
    return Atoms(symbols, positions=np.array(positions, dtype=float) + 0.5, cell=[30, 30, 30], pbc=True)


def _hybrid(decks, pair_style: str, coefficients: str, name: str) -> str:
    text = decks.set_up("water.data")
    start, end = text.index("pair_style"), text.index("timestep")
    return text[:start] + f"pair_style {pair_style}\n{coefficients}\n" + text[end:] + decks.measure(name)


def _deck(decks, boxes: dict[str, Atoms]) -> str:
    text = decks.set_up("water.data") + decks.measure("water")
    text += decks.set_up("water.data", style="device cpu dtype float32") + decks.measure("water_float32")
    for name in boxes:
        text += decks.set_up(f"{name}.data") + decks.measure(name)
    model, lj = "model.safetensors H O", "0.01 1.5"
    style = "flashcart device cpu dtype float64"
    text += _hybrid(decks, "lj/cut 6.0", f"pair_coeff * * {lj}", "lj")
    both = f"pair_coeff * * flashcart {model}\npair_coeff * * lj/cut {lj}"
    text += _hybrid(decks, f"hybrid/overlay {style} lj/cut 6.0", both, "overlay")
    halves = f"pair_coeff * * flashcart 1 {model}\npair_coeff * * flashcart 2 {model}"
    text += _hybrid(decks, f"hybrid/scaled 0.5 {style} 0.5 {style}", halves, "scaled")
    text += _hybrid(decks, style, f"pair_coeff * * {model}", "again")
    zero = "pair_coeff * * flashcart model.safetensors H NULL\npair_coeff * 2 zero"
    text += _hybrid(decks, f"hybrid {style} zero 6.0", zero, "hybrid")
    for units, (_, length) in UNITS.items():
        text += decks.set_up(f"water_{units}.data").replace("units metal", f"units {units}").replace("timestep", "#")
        text += f"neighbor {2.0 * length} bin\n" + decks.measure(f"water_{units}")
    return text


@pytest.fixture(scope="module")
def read(tmp_path_factory, make_model: Callable[..., Path], water_box: Atoms, decks):
    """Return a function that reads one measurement of this module's deck."""
    lammps = decks.prepare(tmp_path_factory.mktemp("physics"), make_model, water_box)
    boxes = _boxes(water_box)
    for name, atoms in boxes.items():
        decks.write_data(lammps.folder / f"{name}.data", atoms)
    for units, (_, length) in UNITS.items():
        decks.write_data(lammps.folder / f"water_{units}.data", water_box, length)
    lammps.run_well(_deck(decks, boxes), timeout=200)
    return lammps.read


@pytest.fixture(scope="module")
def ase_result(make_model: Callable[..., Path], water_box: Atoms) -> Callable[[str], Atoms]:
    """Return a function that gives the box of water with ASE's results in a dtype."""
    from flashcart.calculators import FlashCartCalculator

    def evaluate(dtype: str) -> Atoms:
        atoms = water_box.copy()
        atoms.calc = FlashCartCalculator(model=make_model(), device="cpu", dtype=dtype)
        return atoms

    return evaluate


def test_float64_equals_ase(read, ase_result) -> None:
    found, expected = read("water"), ase_result("float64")
    assert found.energy == pytest.approx(expected.get_potential_energy(), rel=ENERGY)
    np.testing.assert_allclose(found.forces, expected.get_forces(), atol=FORCE)
    np.testing.assert_allclose(found.energies, expected.get_potential_energies(), rtol=ENERGY)
    stress = expected.get_stress(voigt=False)
    # LAMMPS's pressure has the other sign; its conversion to bar has 8 digits.
    np.testing.assert_allclose(found.pressures, [-BAR * stress[mode] for mode in MODES.values()], rtol=1e-7, atol=1e-2)


def test_float32_equals_ase(read, ase_result) -> None:
    found, expected = read("water_float32"), ase_result("float32")
    assert found.energy == pytest.approx(expected.get_potential_energy(), rel=1e-5)
    np.testing.assert_allclose(found.forces, expected.get_forces(), atol=1e-5, rtol=1e-5)
    # A control that float32 was really used.
    assert np.abs(found.forces - read("water").forces).max() > 1e-9


@pytest.mark.parametrize("name", MODES)
def test_pressure_is_the_derivative_of_the_energy_by_strain(read, water_box: Atoms, name: str) -> None:
    plus, minus = (read(f"strain_{name}_{sign:+d}").energy for sign in (1, -1))
    expected = -(plus - minus) / (2 * STRAIN) / water_box.get_volume() * BAR
    pressure = read("water").pressures[list(MODES).index(name)]
    # Central difference: energies of 1e4 eV are known to 1e-12, and the third derivative adds 1e-8 relative.
    assert pressure == pytest.approx(expected, rel=1e-5, abs=5.0)
    assert abs(pressure) > 100.0


def test_squeezing_changes_the_energy_as_the_pressure_says(read, water_box: Atoms) -> None:
    before, after = read("water"), read("squeezed")
    change = after.energy - before.energy
    volume = water_box.get_volume()
    mean_pressure = (before.pressures[:3].mean() + after.pressures[:3].mean()) / 2 / BAR
    assert change == pytest.approx(mean_pressure * volume * (1 - 0.97**3), rel=0.1)


def test_an_isolated_atom_has_exactly_its_offset(read, decks) -> None:
    assert read("alone").energy == decks.free_atoms["O"]
    assert not read("alone").forces.any()


def test_atoms_beyond_the_cutoff_have_exactly_their_offsets(read, decks) -> None:
    assert read("apart").energy == decks.free_atoms["O"] + decks.free_atoms["H"]
    assert not read("apart").forces.any()


def test_a_molecule_that_lost_a_hydrogen_leaves_a_free_atom(read, decks) -> None:
    whole, halfway, apart = (read(f"losing_{gap}") for gap in ("0", "1", "9"))
    assert apart.energies[1] == decks.free_atoms["H"]
    assert not apart.forces[1].any()
    assert abs(whole.energy - apart.energy) > 1e-3
    assert np.abs(halfway.forces[1]).max() > 1e-3


@pytest.mark.parametrize("number", [2, 3, 4])
def test_a_cell_smaller_than_the_cutoff_equals_its_supercell(read, number: int) -> None:
    small, large = read("primitive"), read(f"primitive_{number}")
    np.testing.assert_allclose(large.energies, np.tile(small.energies, number**3), rtol=1e-12)
    np.testing.assert_allclose(large.forces, np.tile(small.forces, (number**3, 1)), atol=1e-10)
    np.testing.assert_allclose(large.pressures, small.pressures, rtol=1e-10, atol=1e-4)
    assert np.abs(small.forces).max() > 1e-3


def test_a_molecule_across_the_boundary_keeps_its_energy(read) -> None:
    inside, across = read("carried_0"), read("carried_14.6")
    assert across.energy == pytest.approx(inside.energy, rel=1e-13)
    np.testing.assert_allclose(across.forces, inside.forces, atol=1e-10)


def test_overlay_is_the_sum_of_its_parts(read) -> None:
    water, other, both = read("water"), read("lj"), read("overlay")
    assert abs(other.energy) > 1.0
    assert both.energy == pytest.approx(water.energy + other.energy, rel=1e-12)
    np.testing.assert_allclose(both.forces, water.forces + other.forces, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(both.energies, water.energies + other.energies, rtol=1e-10)
    np.testing.assert_allclose(both.pressures, water.pressures + other.pressures, rtol=1e-9, atol=1e-3)


def test_two_halves_make_a_whole(read) -> None:
    whole, halves = read("water"), read("scaled")
    assert halves.energy == pytest.approx(whole.energy, rel=1e-12)
    np.testing.assert_allclose(halves.forces, whole.forces, atol=1e-10)


def test_in_a_hybrid_style_other_types_are_left_to_other_styles(read, water_box: Atoms) -> None:
    found, expected = read("hybrid"), read("hydrogen")
    assert found.energy == pytest.approx(expected.energy, rel=1e-12)
    np.testing.assert_allclose(found.forces[water_box.numbers == 1], expected.forces, atol=1e-10)
    assert not found.forces[water_box.numbers == 8].any()


def test_clear_and_loading_again_changes_nothing(read) -> None:
    np.testing.assert_array_equal(read("again").forces, read("water").forces)


@pytest.mark.parametrize("units", UNITS)
def test_unit_systems_agree_after_conversion(read, units: str) -> None:
    energy, length = UNITS[units]
    found, expected = read(f"water_{units}"), read("water")
    # LAMMPS's Boltzmann constants, from which one eV follows, have 7 digits.
    assert found.energy == pytest.approx(expected.energy * energy, rel=1e-6)
    np.testing.assert_allclose(found.forces, expected.forces * energy / length, rtol=1e-5, atol=1e-6 * energy / length)
