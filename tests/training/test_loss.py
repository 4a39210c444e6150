"""Loss terms against numbers worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from flashcart.config import LossTerm
from flashcart.training.loss import merge, partial, residuals, value, weighted_loss

# Two structures of 1 and 4 atoms: energy errors 0.5 and -2 eV; force errors as below.
ENERGY_ERRORS = torch.tensor([0.5, -2.0], dtype=torch.float64)
FORCE_ERRORS = torch.tensor(
    [[0.0, 0.0, 0.0], [3.0, 4.0, 0.0], [0.0, 0.0, -1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64
)
N_ATOMS = torch.tensor([1, 4])


def make_batch(has_forces=(True, True), has_stress=(True, True), weights=(1.0, 1.0)):
    """Return (prediction, batch) whose errors are those above; volumes 2 and 0 Å^3, strain derivatives 2 x identity."""
    labels = torch.arange(15, dtype=torch.float64).reshape(5, 3)
    graph = SimpleNamespace(
        batch=torch.tensor([0, 1, 1, 1, 1]), n_structures=2, volumes=torch.tensor([2.0, 0.0], dtype=torch.float64)
    )
    batch = SimpleNamespace(
        graph=graph,
        energy=torch.tensor([1.0, 2.0], dtype=torch.float64),
        has_energy=torch.tensor([True, True]),
        forces=labels,
        has_forces=torch.tensor(has_forces),
        stress=torch.zeros(2, 3, 3, dtype=torch.float64),
        has_stress=torch.tensor(has_stress),
        weights=torch.tensor(weights, dtype=torch.float64),
        n_atoms=N_ATOMS,
    )
    strain = 2.0 * torch.eye(3, dtype=torch.float64).repeat(2, 1, 1)
    prediction = SimpleNamespace(
        energy=batch.energy + ENERGY_ERRORS, forces=labels + FORCE_ERRORS, strain_derivatives=strain
    )
    return prediction, batch


def value_of(term: LossTerm, prediction, batch) -> float:
    return float(value(term, partial(term, residuals(term.property, prediction, batch), batch.n_atoms)))


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        ("sae", 8.0),
        ("mae", 8.0 / 15),
        ("sse", 26.0),
        ("mse", 26.0 / 15),
        ("rmse", (26.0 / 15) ** 0.5),
        ("maxe", 4.0),
        ("huber_sum", 2.0 * (3.0 - 1.0) + 2.0 * (4.0 - 1.0) + 0.5),  # delta 2: d (|r| - d/2) beyond, r^2/2 within
        ("huber_mean", 10.5 / 15),
        ("norm_sum", 6.0),
        ("norm_mean", 6.0 / 5),
    ],
)
def test_every_reduction_of_forces(reduce, expected):
    assert value_of(LossTerm("forces", reduce, delta=2.0), *make_batch()) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("normalization", "expected"), [("none", 2.5), ("per_atom", 0.5 + 0.5), ("per_sqrt_atom", 0.5 + 1.0)]
)
def test_every_normalization_of_energy(normalization, expected):
    assert value_of(LossTerm("energy", "sae", normalization), *make_batch()) == pytest.approx(expected, rel=1e-14)


def test_frames_without_forces_are_masked_in_sum_and_count():
    assert value_of(LossTerm("forces", "mae"), *make_batch(has_forces=(True, False))) == 0.0
    assert value_of(LossTerm("forces", "mae"), *make_batch(has_forces=(False, True))) == pytest.approx(8.0 / 12)


def test_stress_is_strain_derivative_over_volume():
    term = LossTerm("stress", "sae")
    assert value_of(term, *make_batch(has_stress=(True, False))) == pytest.approx(3 * 2.0 / 2.0)


def test_virial_is_minus_strain_derivative():
    prediction, batch = make_batch(has_stress=(True, False))
    error = residuals("virials", prediction, batch)
    assert torch.equal(error.values[0].reshape(3, 3), -2.0 * torch.eye(3, dtype=torch.float64))


def test_structure_without_volume_gives_finite_gradients():
    prediction, batch = make_batch(has_stress=(True, False))
    prediction.strain_derivatives.requires_grad_()
    weighted_loss([LossTerm("stress", "rmse")], prediction, batch).backward()
    assert torch.isfinite(prediction.strain_derivatives.grad).all()


def test_loss_without_any_label_is_zero_with_zero_gradient():
    prediction, batch = make_batch(has_stress=(False, False))
    prediction.strain_derivatives.requires_grad_()
    for reduce in ("mse", "rmse", "sae", "maxe", "norm_mean"):
        loss = weighted_loss([LossTerm("stress", reduce)], prediction, batch)
        assert float(loss.detach()) == pytest.approx(
            0.0, abs=1e-14
        )  # rmse: the square root of the smallest mean square
        (gradient,) = torch.autograd.grad(loss, prediction.strain_derivatives)
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("reduce", ["rmse", "norm_sum", "norm_mean", "huber_sum", "mae", "maxe"])
def test_gradient_of_a_perfect_prediction_is_finite(reduce):
    prediction, batch = make_batch()
    prediction.forces = batch.forces.clone().requires_grad_()
    weighted_loss([LossTerm("forces", reduce)], prediction, batch).backward()
    assert torch.equal(prediction.forces.grad, torch.zeros_like(batch.forces))


def test_structure_weights_multiply_contributions():
    prediction, batch = make_batch(weights=(3.0, 0.5))
    loss = weighted_loss([LossTerm("energy", "sae")], prediction, batch)
    assert float(loss) == pytest.approx(3.0 * 0.5 + 0.5 * 2.0, rel=1e-14)


def test_weighted_sum_of_terms():
    prediction, batch = make_batch()
    terms = [LossTerm("energy", "mae", weight=2.0), LossTerm("forces", "sae", weight=0.25)]
    assert float(weighted_loss(terms, prediction, batch)) == pytest.approx(2.0 * 1.25 + 0.25 * 8.0, rel=1e-14)


@pytest.mark.parametrize("reduce", ["mae", "rmse", "maxe", "huber_sum", "norm_mean"])
def test_merged_parts_give_the_value_of_the_whole(reduce):
    rng = torch.Generator().manual_seed(0)
    errors = torch.randn(7, 3, generator=rng, dtype=torch.float64)
    term = LossTerm("forces", reduce)

    def part(rows: slice):
        rows_of = torch.zeros(len(errors[rows]), dtype=torch.int64)
        error = SimpleNamespace(values=errors[rows], labelled=torch.ones_like(rows_of).bool(), structures=rows_of)
        return partial(term, error, torch.tensor([1]))

    together = value(term, merge(term, part(slice(0, 2)), part(slice(2, 7))))
    assert float(together) == pytest.approx(float(value(term, part(slice(0, 7)))), rel=1e-14)
    assert np.isfinite(float(together))
