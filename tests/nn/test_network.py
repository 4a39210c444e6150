"""Small networks and activations of unit second moment."""

from __future__ import annotations

import math

import pytest
import torch

from flashcart.errors import UserError
from flashcart.nn.network import Network, activate, check_activation, unit_moment_factor

from ..rotations import assert_same, normal


@pytest.mark.parametrize("name", ["silu", "sigmoid"])
def test_activations_have_unit_second_moment(name):
    z = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    moment = torch.trapezoid(activate(name, z) ** 2 * density, z)
    assert float(moment) == pytest.approx(1, abs=1e-6)  # Gauss-Hermite and trapezoid agree to that


def test_silu_factor_is_the_known_number():
    assert unit_moment_factor("silu") == pytest.approx(1.6765, abs=1e-3)


def test_unknown_activations_are_refused():
    with pytest.raises(UserError, match="gate_activation='tanh': expected one of sigmoid, silu"):
        check_activation("gate_activation", "tanh")


def test_networks_without_bias_map_zero_to_zero():
    network = Network([3, 8, 2], bias=False)
    assert torch.all(network(torch.zeros(4, 3)) == 0)
    assert len(list(network.parameters())) == 2


def test_networks_are_their_formula():
    network = Network([3, 4, 2], bias=True).double()
    network.biases[0].data.normal_()
    x = normal(5, 3)
    hidden = torch.nn.functional.silu(x @ network.matrices[0] / 3**0.5 + network.biases[0]) * unit_moment_factor("silu")
    assert_same(network(x), hidden @ network.matrices[1] / 4**0.5, 1e-14)


def test_networks_without_hidden_layers_are_linear():
    network = Network([3, 2], bias=True)
    assert [tuple(p.shape) for p in network.parameters()] == [(3, 2)]
