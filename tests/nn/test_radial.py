"""Chebyshev functions of the mapped distance, element functions, path weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from flashcart.nn.radial import RadialFunctions, RadialWeights, chebyshev


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
