"""Equivariant layer norm."""

from __future__ import annotations

import torch
from torch import Tensor

from flashcart.nn.mixing import rank_of_component

EPSILON = 1e-6


def per_component(values: Tensor) -> Tensor:
    """[..., l_max + 1, C] -> [..., (l_max + 1)^2, C]: each rank's value for each of its components."""
    return values.index_select(values.ndim - 2, rank_of_component(values.shape[-2] - 1, values.device))


class LayerNorm(torch.nn.Module):
    """Divide by one RMS per node, over the invariant squared norms (each over 2l + 1) of all ranks and channels.

    Args:
        l_max: highest rank.
        channels: number of channels. A gain per rank and channel is learnt.
    """

    def __init__(self, l_max: int, channels: int) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(l_max + 1, channels))
        sizes = torch.cat([torch.full((2 * rank + 1,), float(2 * rank + 1)) for rank in range(l_max + 1)])
        self.register_buffer("weights", (1 / (sizes * (l_max + 1) * channels)).unsqueeze(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[n, (l_max + 1)^2, channels] -> same shape."""
        weights: Tensor = self.weights  # type: ignore[assignment]
        mean_square = (x.square() * weights.to(x.dtype)).sum((1, 2), keepdim=True)
        return x * torch.rsqrt(mean_square + EPSILON) * per_component(self.gain)
