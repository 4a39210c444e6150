"""The ASE calculator: every property, caching, skins, second derivatives, dynamics."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms, units
from ase.calculators.fd import calculate_numerical_forces
from ase.md.verlet import VelocityVerlet
from ase.stress import voigt_6_to_full_3x3_stress

from flashcart.calculators import FlashCartCalculator
from flashcart.deploy import save_model
from flashcart.errors import DeviceError, ModelFileError, UserError

from ..rotations import random_rotation
from ..structures import OFFSETS, crystal, edgeless, isolated_atom, make_model, molecule, slab, strained, turned

STEP = 1e-4  # Å, or strain: central differences of smooth functions, good to about 1e-6


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("ase") / "model.safetensors"
    save_model(target, make_model())
    return target


def attached(path, atoms: Atoms, **options) -> Atoms:
    atoms.calc = FlashCartCalculator(path, **options)
    return atoms


def test_documented_call_works(path):
    calculator = FlashCartCalculator(model=str(path), device="cpu", dtype="float64", skin=0.0)
    assert calculator.elements == ("H", "O")


@pytest.mark.parametrize("structure", [molecule, crystal, slab, isolated_atom, edgeless])
def test_energies_and_forces_have_their_shapes_and_sums(path, structure):
    atoms = attached(path, structure())
    assert atoms.get_potential_energy(force_consistent=True) == atoms.get_potential_energy()
    assert atoms.calc.results["free_energy"] == atoms.calc.results["energy"]
    assert atoms.get_potential_energies().shape == (len(atoms),)
    assert atoms.get_potential_energies().sum() == pytest.approx(atoms.get_potential_energy(), abs=1e-9)
    assert atoms.get_forces().shape == (len(atoms), 3)
    assert atoms.get_forces().dtype == np.float64


@pytest.mark.parametrize("structure", [molecule, crystal, slab])
def test_forces_are_minus_the_slope_of_the_energy(path, structure):
    atoms = attached(path, structure())
    numerical = calculate_numerical_forces(atoms, eps=STEP)
    assert np.abs(numerical).max() > 1e-2
    np.testing.assert_allclose(atoms.get_forces(), numerical, atol=2e-6)


def test_stress_is_the_slope_of_the_energy_in_ases_order_and_sign(path):
    atoms = attached(path, crystal())
    stress = voigt_6_to_full_3x3_stress(atoms.get_stress())
    for a in range(3):
        for b in range(a, 3):
            energies = []
            for step in (STEP, -STEP):
                strain = np.zeros((3, 3))
                strain[a, b] += step / 2
                strain[b, a] += step / 2
                energies.append(attached(path, strained(crystal(), strain)).get_potential_energy())
            slope = (energies[0] - energies[1]) / (2 * STEP) / atoms.get_volume()
            assert stress[a, b] == pytest.approx(slope, abs=1e-6)
    assert np.abs(stress[0, 1:]).min() > 1e-5  # all six differ from zero: the order is tested


def test_stresses_sum_to_the_stress(path):
    atoms = attached(path, crystal())
    np.testing.assert_allclose(atoms.get_stresses().sum(0), atoms.get_stress(), atol=1e-12)


@pytest.mark.parametrize("structure", [molecule, edgeless])
def test_structures_without_a_cell_have_no_stress(path, structure):
    from ase.calculators.calculator import PropertyNotImplementedError

    with pytest.raises(PropertyNotImplementedError):
        attached(path, structure()).get_stress()


def test_free_atom_has_the_offset(path):
    assert attached(path, isolated_atom()).get_potential_energy() == OFFSETS["O"]


def test_one_geometry_is_evaluated_once(path):
    atoms = attached(path, crystal())
    for _ in range(2):
        atoms.get_potential_energy()
        atoms.get_forces()
        atoms.get_stress()
        atoms.get_stresses()
        atoms.get_potential_energies()
    assert atoms.calc.n_evaluations == 1
    atoms.positions[0] += 0.01
    atoms.get_forces()
    assert atoms.calc.n_evaluations == 2


def count_lists(calculator: FlashCartCalculator, monkeypatch) -> list[int]:
    """Count how often the neighbour list is built."""
    import flashcart.calculators.ase as module

    built, original = [], module.neighbor_list

    def counted(*arguments):
        built.append(1)
        return original(*arguments)

    monkeypatch.setattr(module, "neighbor_list", counted)
    return built


@pytest.mark.parametrize("structure", [molecule, crystal, slab])
def test_skin_gives_the_same_numbers_while_atoms_move(path, structure, monkeypatch):
    plain, skinned = attached(path, structure()), attached(path, structure(), skin=0.5)
    built = count_lists(skinned.calc, monkeypatch)
    rng = np.random.default_rng(0)
    for _ in range(12):
        move = rng.normal(scale=0.04, size=plain.positions.shape)
        plain.positions += move
        skinned.positions += move
        np.testing.assert_allclose(skinned.get_forces(), plain.get_forces(), atol=1e-10)
        assert skinned.get_potential_energy() == pytest.approx(plain.get_potential_energy(), abs=1e-9)
    assert 12 < len(built) < 24  # the plain one builds 12, the other fewer but more than one


def test_skin_list_is_kept_until_an_atom_moved_half_of_it(path, monkeypatch):
    atoms = attached(path, crystal(), skin=0.4)
    built = count_lists(atoms.calc, monkeypatch)
    atoms.get_forces()
    atoms.positions[0, 0] += 0.19
    atoms.get_forces()
    assert len(built) == 1
    atoms.positions[0, 0] += 0.02
    atoms.get_forces()
    assert len(built) == 2


@pytest.mark.parametrize("change", ["cell", "pbc", "atoms", "species"])
def test_skin_list_is_built_again_when_the_structure_changes(path, change):
    atoms = attached(path, crystal(), skin=0.6)
    atoms.get_forces()
    if change == "cell":
        atoms.set_cell(atoms.cell.array * 0.75)  # images from beyond the skin come within the cutoff
    elif change == "pbc":
        atoms.pbc = [True, False, True]
    elif change == "atoms":
        atoms.append("H")
        atoms.positions[-1] = [1.0, 1.5, 1.2]
    else:
        atoms.symbols[0] = "H"
    other = atoms.copy()
    np.testing.assert_allclose(atoms.get_forces(), attached(path, other).get_forces(), atol=1e-10)


def test_edges_of_the_skin_do_not_reach_the_model(path):
    calculator = FlashCartCalculator(path, skin=1.5)
    lengths = calculator.graph(crystal()).edge_vectors.norm(dim=1)
    assert len(lengths) == len(FlashCartCalculator(path).graph(crystal()).edge_vectors)
    assert lengths.max() < 4.0


def test_wrapping_atoms_under_a_skin_changes_nothing(path):
    atoms = attached(path, crystal(), skin=0.5)
    before = atoms.get_potential_energy()
    atoms.positions[0] += atoms.cell.array[0]
    assert atoms.get_potential_energy() == pytest.approx(before, abs=1e-9)


@pytest.mark.parametrize("structure", [molecule, crystal])
def test_hessian_equals_finite_differences_of_forces(path, structure):
    atoms = attached(path, structure())
    hessian = atoms.calc.get_hessian(atoms)
    assert hessian.shape == (3 * len(atoms), 3 * len(atoms))
    for row in (1, 5):
        forces = []
        for step in (STEP, -STEP):
            moved = atoms.copy()
            moved.positions.flat[row] += step
            forces.append(attached(path, moved).get_forces().ravel())
        np.testing.assert_allclose(hessian[row], -(forces[0] - forces[1]) / (2 * STEP), atol=2e-5)


def test_descriptors_are_invariant_and_follow_their_atoms(path):
    atoms = attached(path, molecule())
    values = atoms.calc.get_descriptors(atoms)
    assert values.shape == (6, 2 * 4)
    rotated = atoms.calc.get_descriptors(turned(molecule(), random_rotation(3, proper=False).numpy()))
    np.testing.assert_allclose(rotated, values, atol=1e-10)
    np.testing.assert_allclose(atoms.calc.get_descriptors(molecule()[::-1]), values[::-1], atol=1e-10)
    assert np.ptp(values, axis=0).max() > 1e-2


def test_descriptors_of_no_structure_are_refused(path):
    with pytest.raises(UserError, match="no structure"):
        FlashCartCalculator(path).get_descriptors()


def test_atoms_in_one_place_are_a_sentence(path):
    atoms = attached(path, molecule())
    atoms.positions[1] = atoms.positions[0]
    with pytest.raises(UserError, match="atoms 0 and 1 stand in one place"):
        atoms.get_potential_energy()


def test_unknown_element_is_a_sentence(path):
    with pytest.raises(UserError, match="Xe"):
        attached(path, Atoms("HXe", positions=[[0, 0, 0], [1, 1, 1]])).get_potential_energy()


def test_wrong_options_are_sentences(path, tmp_path):
    with pytest.raises(UserError, match=r"skin=-1"):
        FlashCartCalculator(path, skin=-1)
    with pytest.raises(UserError, match="dtype"):
        FlashCartCalculator(path, dtype="half")
    with pytest.raises(DeviceError):
        FlashCartCalculator(path, device="tpu")
    with pytest.raises(ModelFileError, match="no such model file"):
        FlashCartCalculator(tmp_path / "none.safetensors")


def test_float32_is_close_to_float64(path):
    single, double = attached(path, crystal(), dtype="float32"), attached(path, crystal())
    difference = np.abs(single.get_forces() - double.get_forces()).max()
    assert 0 < difference < 1e-4  # rounding, but not none


def fluctuation(path, step: float, time: float = 20.0) -> float:
    """Standard deviation of the total energy over `time` fs of NVE around a minimum, meV per atom.

    The random model's molecule is held together by springs to its start, so that it vibrates rather than falls apart.
    """
    atoms = molecule()
    calculator = FlashCartCalculator(path)
    start, energies = atoms.positions.copy(), []
    original = calculator.calculate

    def with_springs(atoms=None, properties=None, system_changes=("positions",)):
        original(atoms, properties, list(system_changes))
        displaced = atoms.positions - start
        calculator.results["energy"] += 0.5 * 8.0 * np.sum(displaced**2)
        calculator.results["forces"] = calculator.results["forces"] - 8.0 * displaced

    calculator.calculate = with_springs
    atoms.calc = calculator
    atoms.set_momenta(np.zeros((6, 3)))
    dynamics = VelocityVerlet(atoms, timestep=step * units.fs)
    dynamics.attach(lambda: energies.append(atoms.get_total_energy()))
    dynamics.run(int(time / step))
    return 1000 * np.std(energies) / len(atoms)


def test_half_the_time_step_gives_a_quarter_of_the_energy_fluctuation(path):
    """Velocity Verlet is of second order where forces are the gradient of the energy; 15 % for the finite length."""
    coarse, fine = fluctuation(path, 0.4), fluctuation(path, 0.2)
    assert coarse > 1e-3
    assert coarse / fine == pytest.approx(4, rel=0.15)
