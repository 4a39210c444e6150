"""Screened nuclear repulsion at short range."""

from __future__ import annotations

import math

import pytest
import torch

from flashcart.nn.cutoff import envelope
from flashcart.nn.repulsion import Repulsion


def test_repulsion_of_two_atoms_is_the_published_formula():
    """H and O at 0.4 Å, written out; the envelope at r / (sum of radii) included: 1e-12 relative."""
    repulsion = Repulsion([1, 8], [0.31, 0.66], 4.0)
    r = torch.tensor([0.4, 0.4], dtype=torch.float64)
    pair = torch.tensor([0, 1])
    site = repulsion(r, pair.flip(0), pair, torch.tensor([0, 1]))
    a = 0.8854 * 0.529177210903 / (1**0.23 + 8**0.23)
    screening = ((0.1818, 3.2), (0.5099, 0.9423), (0.2802, 0.4028), (0.02817, 0.2016))
    phi = sum(c * math.exp(-b * 0.4 / a) for c, b in screening)
    expected = 14.399645478 * 8 / 0.4 * phi * float(envelope(torch.tensor(0.4 / 0.97, dtype=torch.float64), 6))
    assert float(site.sum()) == pytest.approx(expected, rel=1e-12)
    assert float(site[0]) == pytest.approx(float(site[1]), rel=1e-12)


def test_repulsion_ends_at_the_sum_of_the_radii():
    repulsion = Repulsion([1, 8], [0.31, 0.66], 4.0)
    r = torch.tensor([0.97, 2.0], dtype=torch.float64)
    assert torch.all(repulsion(r, torch.tensor([1, 1]), torch.tensor([0, 0]), torch.tensor([0, 1])) == 0)
