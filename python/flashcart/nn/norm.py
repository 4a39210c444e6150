"""Equivariant layer norm."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

EPSILON = 1e-6


def per_component(values: Tensor) -> Tensor:
    """[..., l_max + 1, C] -> [..., (l_max + 1)^2, C]: each rank's value for each of its components."""
    return values.index_select(values.ndim - 2, rank_of_component(values.shape[-2] - 1, values.device))


def rank_of_component(l_max: int, device: torch.device) -> Tensor:
    """[(l_max + 1)^2] int64: the rank of every component."""
    # A tensor made while tracing belongs to that graph, one made before cannot enter it.
    return _rank_of_component(l_max, device) if torch.compiler.is_compiling() else _kept_ranks(l_max, device)


def _rank_of_component(l_max: int, device: torch.device) -> Tensor:
    return torch.tensor([rank for rank in range(l_max + 1) for _ in range(2 * rank + 1)], device=device)


_kept_ranks = lru_cache(maxsize=64)(_rank_of_component)


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
