"""torch's own numerical checks of the op, float64: an oracle that knows nothing of the IR."""

from __future__ import annotations

import pytest
import torch

from ..programs import TOYS, program_named, random_arrays, random_graph
from .chains import run, tensors

GRAPH = random_graph([2, 0, 1])
NAMES = [
    "edges, row weights",
    "edges, shared weights",
    "edges, summed paths",
    "edges, second with channels",
    "rows",
    "rows, symmetric, row weights",
    "rows, second without channels",
    *(name for name in TOYS if name != "constant and missing outputs"),
]


def function_and_operands(name, channels=2):
    program = program_named(name)
    operands = tensors(random_arrays(program.inputs, GRAPH, channels))
    return (lambda *x: tuple(run(program, list(x), GRAPH))), operands


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck_passes(name):
    function, operands = function_and_operands(name)
    assert torch.autograd.gradcheck(function, operands)


@pytest.mark.parametrize("name", NAMES)
def test_gradgradcheck_passes(name):
    function, operands = function_and_operands(name, channels=1)
    assert torch.autograd.gradgradcheck(function, operands)


@pytest.mark.parametrize("name", ["edges, row weights", "rows, symmetric", "squared operand"])
def test_third_derivatives_pass_gradgradcheck_of_the_gradient(name):
    function, operands = function_and_operands(name, channels=1)
    probe = [torch.randn(out.shape, dtype=out.dtype, generator=_generator()) for out in function(*operands)]

    def gradient(*x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss = sum((p * out.square()).sum() for p, out in zip(probe, function(*x), strict=True))
        return torch.autograd.grad(loss, x, create_graph=True)

    assert torch.autograd.gradgradcheck(gradient, operands, fast_mode=True)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)
