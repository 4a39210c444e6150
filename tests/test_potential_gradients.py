"""Derivatives beyond forces: gradients of a loss on forces and stress, and the Hessian."""

from __future__ import annotations

import pytest
import torch

from flashcart.potential import hessian

from .structures import crystal, edgeless, evaluate, graph_of, isolated_atom, make_model, molecule, slab

CONFIGURATIONS = {
    "default": {},
    "reduced, per element": {
        "path_reduced_product": True,
        "element_agnostic_product": False,
        "element_agnostic_interaction": False,
        "n_element_interaction_features": 2,
    },
    "three layers, no norm, no gate": {"n_interactions": 3, "layer_norm": False, "nonlinearity": False},
    "repulsion, correlation 3": {"zbl": True, "correlation": 3},
}


def force_and_stress_loss(model) -> torch.Tensor:
    """Depends on energies, forces and strain derivatives of a molecule, a crystal and a lone atom."""
    prediction = evaluate(model, molecule(), crystal(), isolated_atom(), training=True)
    weights = torch.arange(prediction.forces.numel(), dtype=torch.float64).cos().view_as(prediction.forces)
    return (
        1e-3 * (prediction.energy + 400).square().sum()
        + (prediction.forces - weights).square().sum()
        + prediction.strain_derivatives.square().sum()
    )


@pytest.mark.parametrize("changes", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_parameter_gradients_of_a_force_and_stress_loss_equal_finite_differences(changes):
    """One random direction per parameter; central differences with relative step 1e-5: 1e-6 relative."""
    model = make_model(**changes).train()
    gradients = torch.autograd.grad(force_and_stress_loss(model), list(model.parameters()))
    generator = torch.Generator().manual_seed(0)
    scale = max(float(g.abs().max()) for g in gradients)
    for (name, parameter), gradient in zip(model.named_parameters(), gradients, strict=True):
        direction = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        kept, values = parameter.detach().clone(), []
        for step in (1e-5, -1e-5):
            parameter.data = kept + step * direction
            values.append(float(force_and_stress_loss(model).detach()))
        parameter.data = kept
        slope = (values[0] - values[1]) / 2e-5
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-7 * scale), name


def test_loss_without_training_flag_has_no_graph():
    assert not evaluate(make_model(), molecule()).forces.requires_grad


@pytest.mark.parametrize("structure", [molecule, slab, crystal])
def test_hessian_equals_finite_differences_of_forces(structure):
    """Central differences with step 1e-4 Å: 1e-5 eV/Å^2."""
    model, atoms = make_model(), structure()
    matrix = hessian(model, graph_of(atoms, model=model))
    for row in (0, 4):
        atom, axis = divmod(row, 3)
        forces = []
        for step in (1e-4, -1e-4):
            moved = atoms.copy()
            moved.positions[atom, axis] += step
            forces.append(evaluate(model, moved).forces.reshape(-1))
        expected = -(forces[0] - forces[1]) / 2e-4
        assert expected.abs().max() > 1e-2
        torch.testing.assert_close(matrix[row], expected, rtol=1e-5, atol=1e-5)


def test_hessian_is_symmetric_and_its_rows_sum_to_zero():
    matrix = hessian(make_model(), graph_of(molecule(), model=make_model()))
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-10)
    assert matrix.view(18, 6, 3).sum(1).abs().max() < 1e-10


@pytest.mark.parametrize("structure", [isolated_atom, edgeless])
def test_hessian_of_free_atoms_is_zero(structure):
    model, n = make_model(), 3 * len(structure())
    assert torch.equal(hessian(model, graph_of(structure(), model=model)), torch.zeros(n, n, dtype=torch.float64))
