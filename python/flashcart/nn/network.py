"""Small dense networks on invariants, with activations of unit second moment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from flashcart.errors import UserError
from flashcart.ops.compilation import constant_to_compiler

ACTIVATIONS = {"silu": torch.nn.functional.silu, "sigmoid": torch.sigmoid}
_ON_POINTS = {"silu": lambda x: x / (1 + np.exp(-x)), "sigmoid": lambda x: 1 / (1 + np.exp(-x))}


@constant_to_compiler
def unit_moment_factor(name: str) -> float:
    """1/sqrt(E[f(z)^2]) for z ~ N(0, 1), by Gauss-Hermite quadrature."""
    return _unit_moment_factor(name)


@cache
def _unit_moment_factor(name: str) -> float:
    points, weights = np.polynomial.hermite_e.hermegauss(120)
    values = _ON_POINTS[name](points)  # without torch: its compiler may be the first to ask, inside a trace
    return float((np.sum(weights * values**2) / np.sum(weights)) ** -0.5)


def activate(name: str, x: Tensor) -> Tensor:
    """The named activation, rescaled to unit second moment."""
    return ACTIVATIONS[name](x) * unit_moment_factor(name)


def check_activation(key: str, name: str) -> None:
    """Refuse an unknown activation.

    Raises:
        UserError: naming the key, the value and what is allowed.
    """
    if name not in ACTIVATIONS:
        raise UserError(f"{key}={name!r}: expected one of {', '.join(sorted(ACTIVATIONS))}.")


class Network(torch.nn.Module):
    """SiLU network without output activation; matrices N(0, 1) scaled by 1/sqrt(fan-in) at run time.

    Args:
        widths: input, hidden and output widths.
        bias: whether hidden layers have biases (they start at zero). Without, the zero input gives zero.
    """

    def __init__(self, widths: Sequence[int], *, bias: bool) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(widths))
        self.matrices = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(a, b)) for a, b in pairs)
        hidden = widths[1:-1] if bias else []
        self.biases = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(width)) for width in hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[n, widths[0]] -> [n, widths[-1]]."""
        last = len(self.matrices) - 1
        for number, matrix in enumerate(self.matrices):
            x = x @ (matrix * matrix.shape[0] ** -0.5)
            if number < last:
                if len(self.biases):
                    x = x + self.biases[number]
                x = activate("silu", x)
        return x
