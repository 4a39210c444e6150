"""Cutoff envelope, radial functions, small networks, norm, gate, short-range repulsion."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from flashcart.cartesian import rotate
from flashcart.errors import UserError
from flashcart.nn.cutoff import envelope
from flashcart.nn.gate import Gate
from flashcart.nn.network import Network, activate, check_activation, unit_moment_factor
from flashcart.nn.norm import LayerNorm, per_component
from flashcart.nn.radial import RadialFunctions, RadialWeights, chebyshev
from flashcart.nn.repulsion import Repulsion

from ..rotations import assert_same, every_orthogonal_matrix, normal


@pytest.mark.parametrize("order", [3, 5, 6, 8])
def test_envelope_and_two_derivatives_vanish_at_the_cutoff(order):
    x = torch.tensor([1.0 - 1e-12], dtype=torch.float64, requires_grad=True)
    value = envelope(x, order)
    (first,) = torch.autograd.grad(value, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    # distance to the cutoff 1e-12 times the third derivative, and rounding of terms of order p^4
    assert max(abs(float(value)), abs(float(first)), abs(float(second))) < 1e-8


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


def test_cosine_map_gives_chebyshev_polynomials_of_cosines():
    r = torch.linspace(0.5, 4.0, 7, dtype=torch.float64)
    t = ((r - 0.5) / 3.5).numpy()
    values = chebyshev(r, 5, 0.5, 4.0, "cosine").numpy()
    for k in range(5):
        expected = np.polynomial.chebyshev.chebval(np.cos(np.pi * t), [0] * k + [1])
        np.testing.assert_allclose(values[:, k], expected, atol=1e-14)


@pytest.mark.parametrize("n_radial", [1, 2, 5])
def test_affine_map_gives_chebyshev_polynomials_of_2t_minus_1(n_radial):
    r = torch.linspace(0.5, 4.0, 7, dtype=torch.float64)
    t = ((r - 0.5) / 3.5).numpy()
    values = chebyshev(r, n_radial, 0.5, 4.0, "affine").numpy()
    assert values.shape == (7, n_radial)
    for k in range(n_radial):
        np.testing.assert_allclose(values[:, k], np.polynomial.chebyshev.chebval(2 * t - 1, [0] * k + [1]), atol=1e-13)


def test_radial_functions_and_weights_vanish_at_the_cutoff_also_with_elements():
    radial = RadialFunctions((4, "cosine", 6), 0.0, 4.0, 2, 3).double()
    weights = RadialWeights(radial.n_functions, (8,), 3, 2).double()
    index = torch.tensor([0, 1])
    near = weights(radial(torch.tensor([1.0, 2.0], dtype=torch.float64), index, index.flip(0)))
    there = weights(radial(torch.tensor([4.0, 4.5], dtype=torch.float64), index, index.flip(0)))
    assert near.shape == (2, 3, 2)
    assert near.abs().min() > 0
    assert torch.all(there == 0)


def test_element_functions_tell_sender_from_receiver():
    radial = RadialFunctions((2, "cosine", 6), 0.0, 4.0, 2, 3).double()
    r, zero, one = torch.tensor([1.5], dtype=torch.float64), torch.tensor([0]), torch.tensor([1])
    values = {(a, b): radial(r, *pair) for (a, b), pair in {("0", "1"): (zero, one), ("1", "0"): (one, zero)}.items()}
    assert values["0", "1"].shape == (1, 2 + 2 * 3)
    assert not torch.allclose(values["0", "1"], values["1", "0"])


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


@every_orthogonal_matrix
def test_layer_norm_is_equivariant(matrix):
    norm = LayerNorm(2, 3).double()
    norm.gain.data.normal_()
    x = normal(4, 9, 3)
    assert_same(norm(rotate(x, matrix)), rotate(norm(x), matrix))


def test_layer_norm_makes_the_mean_square_one():
    norm = LayerNorm(2, 3).double()
    out = norm(5.0 * normal(4, 9, 3))
    squares = torch.stack([out[:, l * l : (l + 1) ** 2].square().sum(1) / (2 * l + 1) for l in range(3)], dim=1)
    torch.testing.assert_close(squares.mean((1, 2)), torch.ones(4, dtype=out.dtype), rtol=1e-5, atol=0)  # epsilon 1e-6


def test_layer_norm_of_zero_is_zero_with_finite_gradients():
    norm = LayerNorm(1, 2).double()
    x = torch.zeros(1, 4, 2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(norm(x).sum(), x)
    assert torch.all(norm(x) == 0)
    assert torch.isfinite(gradient).all()


def test_values_per_rank_are_repeated_for_components():
    values = torch.arange(3.0).unsqueeze(1)
    assert per_component(values).squeeze(1).tolist() == [0, 1, 1, 1, 2, 2, 2, 2, 2]


@every_orthogonal_matrix
@pytest.mark.parametrize("activation", ["sigmoid", "silu"])
def test_gate_is_equivariant(activation, matrix):
    gate = Gate(2, 3, activation, True).double()
    for parameter in gate.parameters():
        parameter.data.normal_(generator=torch.Generator().manual_seed(4))
    x = normal(4, 9, 3)
    assert_same(gate(rotate(x, matrix)), rotate(gate(x), matrix))
    assert not torch.allclose(gate(x), x)


def test_gate_starts_as_the_identity():
    x = normal(4, 9, 3)
    assert torch.equal(Gate(2, 3, "sigmoid", True).double()(x), x)


def test_gate_bias_is_a_parameter_where_asked():
    assert Gate(1, 3, "sigmoid", False).bias is None
    assert tuple(Gate(1, 3, "sigmoid", True).bias.shape) == (6,)


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
