"""Physics of the potential: symmetries, derivatives, extensivity, limits; tiny random models, float64.

Tolerances: SAME is rounding of sums of about 1e4 terms around an energy of 1e3 eV; SLOPE is what central differences
with step 1e-4 Å of a function with third derivatives of order 10 can give (1e-7), times a margin.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ase import Atoms

from flashcart.potential import predict

from .rotations import ORTHOGONAL
from .structures import (
    BONDED,
    OFFSETS,
    STRUCTURES,
    crystal,
    edgeless,
    energy,
    evaluate,
    graph_of,
    isolated_atom,
    make_model,
    molecule,
    slab,
    strained,
    turned,
)

SAME = 1e-9
SLOPE = 2e-6
STEP = 1e-4

every_structure = pytest.mark.parametrize("name", STRUCTURES)
every_bonded_structure = pytest.mark.parametrize("name", BONDED)


@pytest.fixture(scope="module")
def model():
    return make_model()


def largest(x: torch.Tensor) -> float:
    return float(x.detach().abs().max())


@every_structure
@pytest.mark.parametrize("matrix", ORTHOGONAL.values(), ids=ORTHOGONAL)
def test_energy_is_invariant_and_forces_and_stress_turn_along(model, name, matrix):
    atoms = STRUCTURES[name]()
    before, after = evaluate(model, atoms), evaluate(model, turned(atoms, matrix.numpy()))
    torch.testing.assert_close(after.energy, before.energy, rtol=0, atol=SAME)
    torch.testing.assert_close(after.forces, before.forces @ matrix.T, rtol=0, atol=SAME)
    expected = matrix @ before.strain_derivatives[0] @ matrix.T
    torch.testing.assert_close(after.strain_derivatives[0], expected, rtol=0, atol=SAME)
    if name in BONDED:
        assert min(largest(before.forces), largest(before.strain_derivatives)) > 1e-2


@every_structure
def test_translation_changes_nothing(model, name):
    atoms = STRUCTURES[name]()
    before = evaluate(model, atoms)
    atoms.positions += [1.3, -0.7, 2.9]
    after = evaluate(model, atoms)
    torch.testing.assert_close(after.energy, before.energy, rtol=0, atol=SAME)
    torch.testing.assert_close(after.forces, before.forces, rtol=0, atol=SAME)


@every_bonded_structure
def test_moving_an_atom_by_a_lattice_vector_changes_nothing(model, name):
    atoms = STRUCTURES[name]()
    before = evaluate(model, atoms)
    atoms.positions[1] += atoms.pbc[0] * atoms.cell.array[0] - 2 * atoms.pbc[1] * atoms.cell.array[1]
    after = evaluate(model, atoms)
    torch.testing.assert_close(after.energy, before.energy, rtol=0, atol=SAME)
    torch.testing.assert_close(after.forces, before.forces, rtol=0, atol=SAME)


@every_structure
def test_permutation_permutes_atoms_and_changes_no_sum(model, name):
    atoms = STRUCTURES[name]()
    order = np.random.default_rng(0).permutation(len(atoms))
    before, after = evaluate(model, atoms), evaluate(model, atoms[order])
    torch.testing.assert_close(after.energy, before.energy, rtol=0, atol=SAME)
    torch.testing.assert_close(after.site_energies, before.site_energies[order], rtol=0, atol=SAME)
    torch.testing.assert_close(after.forces, before.forces[order], rtol=0, atol=SAME)


@every_bonded_structure
def test_forces_are_minus_the_slope_of_the_energy(model, name):
    atoms = STRUCTURES[name]()
    forces = evaluate(model, atoms).forces
    for atom, axis in [(0, 0), (1, 1), (len(atoms) - 1, 2), (1, 0)]:
        energies = []
        for step in (STEP, -STEP):
            moved = atoms.copy()
            moved.positions[atom, axis] += step
            energies.append(energy(model, moved))
        assert float(forces[atom, axis]) == pytest.approx(-(energies[0] - energies[1]) / (2 * STEP), abs=SLOPE)


@every_bonded_structure
@pytest.mark.parametrize("place", [(0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1)])
def test_strain_derivative_is_the_slope_of_the_energy_under_strain(model, name, place):
    atoms = STRUCTURES[name]()
    prediction = evaluate(model, atoms)
    direction = np.zeros((3, 3))
    direction[place] += 0.5
    direction[place[::-1]] += 0.5
    above, below = (energy(model, strained(atoms, step * direction)) for step in (STEP, -STEP))
    slope = float((prediction.strain_derivatives[0] * torch.from_numpy(direction)).sum())
    assert slope == pytest.approx((above - below) / (2 * STEP), abs=10 * SLOPE)  # atoms move by up to 10 Å x strain


@pytest.mark.parametrize(
    "atoms", [crystal(), turned(crystal(), np.diag([1.0, 1.0, -1.0]))], ids=["right", "left-handed"]
)
def test_stress_is_the_strain_derivative_over_the_volume(model, atoms):
    prediction = evaluate(model, atoms)
    torch.testing.assert_close(prediction.stress, prediction.strain_derivatives / abs(atoms.cell.volume))


def test_strain_derivative_is_symmetric_to_the_last_bit(model):
    strain = evaluate(model, crystal()).strain_derivatives
    assert torch.equal(strain, strain.transpose(1, 2))


@pytest.mark.parametrize("name", ["molecule", "isolated atom", "edgeless"])
def test_structures_without_a_volume_have_no_stress(model, name):
    assert torch.isnan(evaluate(model, STRUCTURES[name]()).stress).all()


def test_a_stretched_bond_is_under_tension():
    """Where the energy rises on stretching, the stress is positive (tensile), ASE's sign."""
    model = make_model()
    atoms = crystal()
    trace = float(evaluate(model, atoms).stress[0].trace())
    grown = energy(model, strained(atoms, 1e-3 * np.eye(3))) - energy(model, strained(atoms, -1e-3 * np.eye(3)))
    assert abs(trace) > 1e-3
    assert np.sign(trace) == np.sign(grown)


@every_structure
def test_forces_sum_to_zero(model, name):
    assert largest(evaluate(model, STRUCTURES[name]()).forces.sum(0)) < 1e-10


@pytest.mark.parametrize("name", ["molecule", "isolated atom", "edgeless"])
def test_torques_of_free_structures_sum_to_zero(model, name):
    atoms = STRUCTURES[name]()
    forces = evaluate(model, atoms).forces.numpy()
    np.testing.assert_allclose(np.cross(atoms.positions, forces).sum(0), 0, atol=1e-10)


@every_structure
def test_per_atom_virials_sum_to_minus_the_strain_derivative(model, name):
    prediction = evaluate(model, STRUCTURES[name]())
    virial = prediction.atom_virials().sum(0)
    d = -prediction.strain_derivatives[0]
    expected = torch.stack([d[0, 0], d[1, 1], d[2, 2], d[0, 1], d[0, 2], d[1, 2]])
    torch.testing.assert_close(virial, expected, rtol=0, atol=1e-10)


@every_structure
def test_site_energies_sum_to_the_energy(model, name):
    prediction = evaluate(model, STRUCTURES[name]())
    assert prediction.site_energies.dtype is torch.float64
    torch.testing.assert_close(prediction.site_energies.sum(0), prediction.energy[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["isolated atom", "edgeless"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_free_atoms_have_exactly_the_offset_and_no_force(name, dtype):
    atoms = STRUCTURES[name]()
    prediction = evaluate(make_model(dtype), atoms)
    assert prediction.site_energies.tolist() == [OFFSETS[symbol] for symbol in atoms.symbols]
    assert torch.all(prediction.forces == 0)


def test_dissociation_ends_at_the_sum_of_the_offsets(model):
    atoms = molecule()
    assert abs(energy(model, atoms) - sum(OFFSETS[symbol] for symbol in atoms.symbols)) > 1e-2
    atoms.positions *= 30
    assert energy(model, atoms) == pytest.approx(sum(OFFSETS[symbol] for symbol in atoms.symbols), abs=SAME)


@pytest.mark.parametrize("repeat", [(2, 1, 1), (1, 2, 1), (1, 1, 2)])
def test_supercell_has_twice_the_energy_and_the_same_forces_and_stress(model, repeat):
    atoms = crystal()
    one, two = evaluate(model, atoms), evaluate(model, atoms.repeat(repeat))
    torch.testing.assert_close(two.energy, 2 * one.energy, rtol=0, atol=SAME)
    torch.testing.assert_close(two.forces, one.forces.repeat(2, 1), rtol=0, atol=SAME)
    torch.testing.assert_close(two.stress, one.stress, rtol=0, atol=SAME)


def test_far_fragments_have_the_sum_of_their_energies(model):
    """Two layers of 4 Å each: fragments 9 Å apart share no information."""
    first, second = molecule(), molecule()[:3]
    second.positions += [30.0, 5.0, 0]
    both = evaluate(model, first + second)
    torch.testing.assert_close(
        both.energy, evaluate(model, first).energy + evaluate(model, second).energy, rtol=0, atol=SAME
    )


def test_batch_equals_separate_evaluations(model):
    structures = [make() for make in STRUCTURES.values()]
    batch = evaluate(model, *structures)
    apart = [evaluate(model, atoms) for atoms in structures]
    torch.testing.assert_close(batch.energy, torch.cat([p.energy for p in apart]), rtol=0, atol=SAME)
    torch.testing.assert_close(batch.forces, torch.cat([p.forces for p in apart]), rtol=0, atol=SAME)
    torch.testing.assert_close(batch.stress, torch.cat([p.stress for p in apart]), rtol=0, atol=SAME, equal_nan=True)
    torch.testing.assert_close(batch.atom_virials(), torch.cat([p.atom_virials() for p in apart]), rtol=0, atol=SAME)


def test_order_of_edges_does_not_matter(model):
    from dataclasses import replace

    graph = graph_of(crystal(), model=model)
    order = torch.randperm(len(graph.senders), generator=torch.Generator().manual_seed(0))
    mixed = replace(
        graph,
        edge_vectors=graph.edge_vectors[order],
        senders=graph.senders[order],
        receivers=graph.receivers[order],
    )
    sorted_, shuffled = predict(model, graph), predict(model, mixed)
    torch.testing.assert_close(shuffled.energy, sorted_.energy, rtol=0, atol=SAME)
    torch.testing.assert_close(shuffled.forces, sorted_.forces, rtol=0, atol=SAME)
    torch.testing.assert_close(shuffled.edge_gradients, sorted_.edge_gradients[order], rtol=0, atol=SAME)


def _pair_curves(model, distances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Energies and forces along the axis of a third atom that leaves a bonded pair."""
    energies, forces = [], []
    for r in distances:
        atoms = Atoms("OHH", positions=[[0, 0, 0], [0.9, 0.3, 0], [0, 0, r]])
        prediction = evaluate(model, atoms)
        energies.append(float(prediction.energy[0]))
        forces.append(float(prediction.forces[2, 2]))
    return np.array(energies), np.array(forces)


def test_energy_and_force_are_continuous_and_smooth_through_the_cutoff(model):
    """The envelope makes the energy ~ (r_max - r)^3, the force its square, the slope of the force linear: no jumps."""
    r_max, step = model.config.r_max, 1e-3
    distances = r_max + step * np.arange(-40, 41)
    energies, forces = _pair_curves(model, distances)
    inside = _pair_curves(model, np.array([r_max - 1.0]))
    beyond = energies[-1]
    assert abs(inside[0][0] - beyond) > 1e-3  # there is an interaction that has to end
    assert energies[distances > r_max] == pytest.approx(beyond, abs=SAME)
    assert forces[distances > r_max] == pytest.approx(0, abs=1e-10)
    slopes = np.diff(forces) / step
    assert np.abs(np.diff(slopes)).max() < 0.1 * abs(inside[1][0]) + 1e-3
    np.testing.assert_allclose(np.diff(energies) / step, -0.5 * (forces[1:] + forces[:-1]), atol=1e-5)


@every_structure
def test_float32_agrees_with_float64(name):
    """One rounding is 6e-8; forces of a few eV/Å from some hundred terms."""
    double = make_model()
    single = make_model()
    single.load_state_dict(double.state_dict())
    for parameter in single.parameters():
        parameter.data = parameter.data.float()
    single.eval()
    atoms = STRUCTURES[name]()
    exact, rounded = evaluate(double, atoms), evaluate(single, atoms)
    assert rounded.forces.dtype is torch.float32
    assert rounded.energy.dtype is torch.float64
    torch.testing.assert_close(rounded.energy, exact.energy, rtol=0, atol=1e-4)
    torch.testing.assert_close(rounded.forces.double(), exact.forces, rtol=0, atol=1e-4)


def test_prediction_leaves_no_gradients_behind(model):
    prediction = evaluate(model, molecule())
    assert not any(getattr(prediction, n).requires_grad for n in ("energy", "site_energies", "forces", "stress"))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_prediction_works_under_no_grad(model):
    with torch.no_grad():
        inside = evaluate(model, molecule())
    torch.testing.assert_close(inside.forces, evaluate(model, molecule()).forces, rtol=0, atol=0)


def test_training_and_evaluation_agree(model):
    structures = [molecule(), crystal(), slab(), isolated_atom(), edgeless()]
    evaluated = evaluate(model, *structures)
    trained = evaluate(model.train(), *structures, training=True)
    model.eval()
    for key in ("energy", "forces", "strain_derivatives"):
        torch.testing.assert_close(getattr(trained, key).detach(), getattr(evaluated, key), rtol=0, atol=SAME)
