"""The gated residual branch."""

from __future__ import annotations

import pytest
import torch

from flashcart.cartesian import rotate
from flashcart.nn.gate import Gate

from ..rotations import assert_same, every_orthogonal_matrix, normal


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
