"""One message-passing layer: neighbours' features times edge tensors, summed at the receiver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flashcart.ir.ranks import components
from flashcart.nn.gate import Gate
from flashcart.nn.mixing import EquivariantLinear
from flashcart.nn.norm import LayerNorm
from flashcart.nn.product import TensorProduct
from flashcart.nn.radial import RadialWeights

Exchange = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Edges:
    """What every layer needs of the edges.

    Attributes:
        senders, receivers: [n_edges] int64.
        tensors: [n_edges, (l_edge + 1)^2], expansions of the directions.
        radial: [n_edges, n_functions], envelope included.
        n_nodes: nodes that send; n_owned: nodes that receive (the first ones).
    """

    senders: Tensor
    receivers: Tensor
    tensors: Tensor
    radial: Tensor
    n_nodes: int
    n_owned: int


@dataclass(frozen=True)
class InteractionShape:
    """Ranks and widths of an interaction: input, edge and output ranks, channels, radial functions and widths."""

    l_in: int
    l_edge: int
    l_out: int
    channels: int
    n_functions: int
    hidden: tuple[int, ...]


class Interaction(torch.nn.Module):
    """Linear map, product with edge tensors, sum over edges, linear map over (path, channel), residual, norm, gate.

    Args:
        shape: ranks and widths.
        layer_norm: whether the result is normalised.
        gate: (activation, bias) of the gate, or None.
        backend: of the product.
    """

    def __init__(
        self, shape: InteractionShape, *, layer_norm: bool, gate: tuple[str, bool] | None, backend: str = "torch"
    ) -> None:
        super().__init__()
        channels = shape.channels
        self.l_in, self.l_out = shape.l_in, shape.l_out
        self.linear = EquivariantLinear([1] * (shape.l_in + 1), channels, channels)
        self.product = TensorProduct(shape.l_in, shape.l_edge, shape.l_out, channels, backend)
        self.weights = RadialWeights(shape.n_functions, shape.hidden, self.product.n_paths, channels)
        self.mix = EquivariantLinear(self.product.paths_per_rank(), channels, channels)
        self.norm = LayerNorm(shape.l_out, channels) if layer_norm else None
        self.gate = Gate(shape.l_out, channels, *gate) if gate else None

    def forward(self, x: Tensor, edges: Edges, average_neighbors: Tensor, exchange: Exchange | None) -> Tensor:
        """Pass messages.

        Args:
            x: [n_nodes or n_owned, (l_in + 1)^2, channels]; with `exchange`, rows of owned nodes only.
            edges: the edges.
            average_neighbors: scalar.
            exchange: adds the rows of nodes owned elsewhere.

        Returns:
            [n_owned, (l_out + 1)^2, channels].
        """
        sent = self.linear(x)
        if exchange is not None:
            sent = exchange(sent)
        summed = self.product(
            sent,
            edges.tensors,
            self.weights(edges.radial),
            senders=edges.senders,
            receivers=edges.receivers,
            n_nodes=edges.n_nodes,
        )[: edges.n_owned]
        mixed = self.mix(summed) * average_neighbors.to(x.dtype).rsqrt()
        mixed = add_ranks(mixed, x[: edges.n_owned])
        if self.norm is not None:
            mixed = self.norm(mixed)
        return mixed if self.gate is None else self.gate(mixed)


def add_ranks(x: Tensor, y: Tensor) -> Tensor:
    """x plus y in the ranks that both have; [n, components, channels] each, result as x."""
    k = min(x.shape[1], y.shape[1])
    if k == x.shape[1]:
        return x + y[:, :k]
    return torch.cat([x[:, :k] + y[:, :k], x[:, k:]], dim=1)


def first_ranks(x: Tensor, l_max: int) -> Tensor:
    """Ranks 0..l_max of x."""
    return x[:, : components(l_max)]
