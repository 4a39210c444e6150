"""The envelope: float64 rounding."""

from __future__ import annotations

import pytest
import torch

from flashcart.nn.cutoff import envelope


@pytest.mark.parametrize("order", [3, 5, 6, 8])
def test_envelope_and_two_derivatives_vanish_at_the_cutoff(order):
    x = torch.tensor([1.0 - 1e-12], dtype=torch.float64, requires_grad=True)
    value = envelope(x, order)
    (first,) = torch.autograd.grad(value, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    # distance to the cutoff 1e-12 times the third derivative, and rounding of terms of order p^4
    assert max(float(d.detach().abs()) for d in (value, first, second)) < 1e-8


def test_envelope_is_one_at_zero_and_falls_to_zero():
    x = torch.linspace(0, 1, 101, dtype=torch.float64)
    values = envelope(x, 6)
    assert values[0] == 1
    assert torch.all(values[1:] - values[:-1] <= 1e-12)
    assert torch.all(envelope(torch.tensor([1.0, 1.5, 100.0]), 6) == 0)


def test_envelope_beyond_the_cutoff_has_zero_gradient():
    x = torch.tensor([1.0, 1.2], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(envelope(x, 6).sum(), x)
    assert torch.all(gradient == 0)
