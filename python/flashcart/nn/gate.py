"""Gated residual branch: scalars of a node decide how much of each of its tensors is added."""

from __future__ import annotations

import torch
from torch import Tensor

from flashcart.nn.mixing import EquivariantLinear
from flashcart.nn.network import activate
from flashcart.nn.norm import per_component


class Gate(torch.nn.Module):
    """x + L(gate(scalars of x) * x), one gate per rank and channel; L starts at zero.

    Args:
        l_max: highest rank.
        channels: number of channels.
        activation: `sigmoid` or `silu`, rescaled to unit second moment.
        bias: whether the gates have biases.
    """

    def __init__(self, l_max: int, channels: int, activation: str, bias: bool) -> None:
        super().__init__()
        self.activation, self.shape = activation, (l_max + 1, channels)
        self.matrix = torch.nn.Parameter(torch.randn(channels, (l_max + 1) * channels))
        self.bias = torch.nn.Parameter(torch.zeros((l_max + 1) * channels)) if bias else None
        self.output = EquivariantLinear([1] * (l_max + 1), channels, channels, zero=True)

    def forward(self, x: Tensor) -> Tensor:
        """[n, (l_max + 1)^2, channels] -> same shape."""
        logits = x[:, 0] @ (self.matrix * self.matrix.shape[0] ** -0.5)
        if self.bias is not None:
            logits = logits + self.bias
        gates = activate(self.activation, logits).view(-1, *self.shape)
        return x + self.output(per_component(gates) * x)
