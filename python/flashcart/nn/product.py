"""Tensor products of irreducible Cartesian tensors: over edges, or row by row."""

from __future__ import annotations

import torch
from torch import Tensor

from flashcart.errors import UserError
from flashcart.ir.contraction import Contraction
from flashcart.ir.ranks import components, path_offsets, product_paths
from flashcart.ir.requests import ProductRequest, Weights
from flashcart.nn.expansion import program_of
from flashcart.ops.compilation import constant_to_compiler
from flashcart.ops.contract import contract


@constant_to_compiler
def _product_program(
    ranks: tuple[int, int, int], edges: bool, second_channels: bool, weights: str, sum_paths: bool, symmetric: bool
) -> Contraction:
    """For the compiler, which does not look inside and takes plain constants only."""
    return program_of(ProductRequest(*ranks, edges, second_channels, Weights(weights), sum_paths, symmetric))


class TensorProduct(torch.nn.Module):
    """All even paths (l1, l2 -> l3) between two tensors, per channel, each scaled to unit variance.

    Args:
        l_in: highest rank of the first tensor.
        l_edge: highest rank of the second tensor.
        l_out: highest rank of the output.
        channels: number of channels.
        backend: `torch` or `triton`.
        sum_paths: sum the paths of one output rank instead of keeping them.
        symmetric: the second tensor is the first one; of (l1, l2) and (l2, l1) one is kept. Called without `y`.

    Attributes:
        paths: the paths in storage order (output rank, then l1, l2).
        n_paths: their number; weights have one column each.
        out_components: components of the output.
    """

    def __init__(
        self,
        l_in: int,
        l_edge: int,
        l_out: int,
        channels: int,
        backend: str = "torch",
        *,
        sum_paths: bool = False,
        symmetric: bool = False,
    ) -> None:
        super().__init__()
        if min(l_in, l_edge, l_out) < 0 or channels < 1:
            raise UserError(
                f"TensorProduct: ranks must be >= 0 and channels >= 1, got {l_in=} {l_edge=} {l_out=} {channels=}."
            )
        if symmetric and l_in != l_edge:
            raise UserError(f"TensorProduct: a symmetric product needs l_in == l_edge, got {l_in} and {l_edge}.")
        self.l_in, self.l_edge, self.l_out, self.channels = l_in, l_edge, l_out, channels
        self.backend, self.sum_paths, self.symmetric = backend, sum_paths, symmetric
        self.paths = product_paths(l_in, l_edge, l_out, symmetric=symmetric)
        self.n_paths = len(self.paths)
        self.out_components = components(l_out) if sum_paths else path_offsets(self.paths)[-1]

    def paths_per_rank(self) -> tuple[int, ...]:
        """Number of kept paths of each output rank."""
        return tuple(sum(path.l_out == rank for path in self.paths) for rank in range(self.l_out + 1))

    def forward(
        self,
        x: Tensor,
        y: Tensor | None = None,
        weights: Tensor | None = None,
        *,
        senders: Tensor | None = None,
        receivers: Tensor | None = None,
        n_nodes: int | None = None,
    ) -> Tensor:
        """Multiply.

        Args:
            x: first tensor, [n, (l_in + 1)^2, channels]: per node with indices, per row without.
            y: second tensor, [rows, (l_edge + 1)^2] for all channels or [rows, (l_edge + 1)^2, channels].
            weights: one factor per path and channel, [rows, n_paths, channels], or [n_paths, channels] for all rows.
            senders, receivers: [rows] int64; x is then gathered from senders and the result summed at receivers.
            n_nodes: number of nodes; default the rows of x.

        Returns:
            [n_nodes or rows, out_components, channels]: by output rank, then path (unless summed), then component.
        """
        edges = senders is not None
        if edges != (receivers is not None):
            raise ValueError("senders and receivers are given together or not at all")
        if (y is None) != self.symmetric:
            raise ValueError("a symmetric product takes one tensor, any other two")
        shared = weights is not None and weights.ndim == 2
        kind = "none" if weights is None else "shared" if shared else "row"
        form = (edges, y is None or y.ndim == 3, kind, self.sum_paths, self.symmetric)
        program = _product_program((self.l_in, self.l_edge, self.l_out), *form)
        operands = [x] if y is None else [x, y]
        if weights is not None:
            operands.append(weights.unsqueeze(0) if shared else weights)
        n = x.shape[0] if n_nodes is None else n_nodes
        return contract(program, operands, senders=senders, receivers=receivers, n_nodes=n, backend=self.backend)[0]
