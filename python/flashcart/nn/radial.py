"""Path weights of an interaction as functions of the distance (and of the elements, where asked)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flashcart.nn.cutoff import envelope
from flashcart.nn.network import Network

MAPPINGS = ("cosine", "affine")


def chebyshev(distances: Tensor, n_radial: int, r_min: float, r_max: float, mapping: str) -> Tensor:
    """T_0 .. T_(n_radial - 1) of the mapped distance: T_k(cos(pi t)) = cos(k pi t), or T_k(2t - 1).

    Here t = (r - r_min)/(r_max - r_min). Distances below r_min are mapped like r_min would be continued; both maps are
    smooth there.

    Args:
        distances: [n_edges], Å.

    Returns:
        [n_edges, n_radial].
    """
    t = ((distances - r_min) / (r_max - r_min)).unsqueeze(1)
    if mapping == "cosine":
        orders = torch.arange(n_radial, dtype=t.dtype, device=t.device)
        return torch.cos(math.pi * orders * t)
    values = [torch.ones_like(t), 2 * t - 1]
    while len(values) < n_radial:
        values.append(2 * values[1] * values[-1] - values[-2])
    return torch.cat(values[:n_radial], dim=1)


class RadialWeights(torch.nn.Module):
    """A bias-free network from radial functions to one weight per path and channel.

    Because the envelope multiplies all inputs and the network has no biases, the weights vanish smoothly at the cutoff.

    Args:
        n_inputs: number of radial (and element) functions.
        hidden: widths of the hidden layers.
        n_paths, channels: what is made.
    """

    def __init__(self, n_inputs: int, hidden: tuple[int, ...], n_paths: int, channels: int) -> None:
        super().__init__()
        self.n_paths, self.channels = n_paths, channels
        self.network = Network([n_inputs, *hidden, n_paths * channels], bias=False)

    def forward(self, radial: Tensor) -> Tensor:
        """[n_edges, n_inputs] (envelope included) -> [n_edges, n_paths, channels]."""
        return self.network(radial).view(radial.shape[0], self.n_paths, self.channels)


class RadialFunctions(torch.nn.Module):
    """Chebyshev functions, joined by element embeddings where asked, times the envelope.

    Args:
        n_radial, r_min, r_max, mapping, order: see the keys of the configuration.
        n_elements, width: sender and receiver embeddings of this width join where `width` is given.
    """

    def __init__(
        self, shape: tuple[int, str, int], r_min: float, r_max: float, n_elements: int, width: int | None
    ) -> None:
        super().__init__()
        self.n_radial, self.mapping, self.order = shape
        self.r_min, self.r_max = r_min, r_max
        self.embedding = torch.nn.Parameter(torch.randn(n_elements, width)) if width else None
        self.n_functions = self.n_radial + 2 * (width or 0)

    def forward(self, distances: Tensor, sender_species: Tensor, receiver_species: Tensor) -> Tensor:
        """[n_edges] distances (Å) and element numbers -> [n_edges, n_functions]."""
        functions = chebyshev(distances, self.n_radial, self.r_min, self.r_max, self.mapping)
        if self.embedding is not None:
            pair = [self.embedding.index_select(0, sender_species), self.embedding.index_select(0, receiver_species)]
            functions = torch.cat([functions, *pair], dim=1)
        return functions * envelope(distances / self.r_max, self.order).unsqueeze(1)
