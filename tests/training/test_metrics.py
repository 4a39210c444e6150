"""Metrics of a whole set."""

from __future__ import annotations

import math

import pytest
import torch

from flashcart.config import LossTerm
from flashcart.training.metrics import Metrics, metric_name, shown

from .test_loss import make_batch

TERMS = (LossTerm("energy", "rmse", "per_atom"), LossTerm("forces", "mae"), LossTerm("stress", "rmse"))


def test_rmse_is_over_the_set_and_not_the_mean_over_batches():
    metrics = Metrics([LossTerm("forces", "rmse")])
    for has_forces in ((True, False), (False, True)):  # batches with errors 0 and sqrt(26/12)
        metrics.add(*make_batch(has_forces=has_forces))
    assert metrics.values() == {"forces_rmse[eV/Å]": pytest.approx((26.0 / 15) ** 0.5, rel=1e-14)}


def test_names_carry_units():
    assert [metric_name(term) for term in TERMS] == [
        "energy_per_atom_rmse[eV/atom]",
        "forces_mae[eV/Å]",
        "stress_rmse[eV/Å^3]",
    ]
    assert metric_name(LossTerm("forces", "mse")) == "forces_mse[(eV/Å)²]"


def test_term_without_labels_is_nan_and_counts_nothing_in_a_sum():
    metrics = Metrics(TERMS)
    metrics.add(*make_batch(has_stress=(False, False)))
    assert math.isnan(metrics.values()["stress_rmse[eV/Å^3]"])
    assert metrics.weighted_sum(TERMS) == pytest.approx(0.5 + 8.0 / 15, rel=1e-14)


def test_structure_weights_do_not_count():
    metrics = Metrics([LossTerm("energy", "sae")])
    metrics.add(*make_batch(weights=(5.0, 5.0)))
    assert metrics.values()["energy_sae[eV]"] == pytest.approx(2.5, rel=1e-14)


def test_term_that_stands_twice_is_counted_once():
    term = LossTerm("energy", "sae")
    metrics = Metrics([term, LossTerm("energy", "sae", weight=2.0)])
    metrics.add(*make_batch())
    assert metrics.values() == {"energy_sae[eV]": pytest.approx(2.5, rel=1e-14)}


def test_restored_sums_continue_exactly():
    whole, first = Metrics(TERMS), Metrics(TERMS)
    for metrics in (whole, first):
        metrics.add(*make_batch())
    second = Metrics(TERMS)
    second.load_state(first.state(), torch.device("cpu"))
    for metrics in (whole, second):
        metrics.add(*make_batch(has_forces=(False, True)))
    assert whole.values() == second.values()


def test_energies_and_forces_are_shown_in_milli_units():
    assert shown(TERMS[0], 0.0123) == ("energy per atom rmse", "12.3 meV/atom")
    assert shown(TERMS[2], 0.0123) == ("stress rmse", "0.0123 eV/Å^3")
