"""Expansion of edge vectors into irreducible Cartesian tensors of their directions."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from flashcart.ir.contraction import Contraction
from flashcart.ir.requests import ExpansionRequest, Request
from flashcart.ops.compilation import constant_to_compiler
from flashcart.ops.contract import contract
from flashcart.ops.kernel_cache import contraction_of_request


@cache
def program_of(request: Request) -> Contraction:
    """The contraction of a request; sympy is imported on a cache miss only."""

    def make() -> Contraction:
        from flashcart.algebra import lowering

        return lowering.make(request)

    return contraction_of_request(request, make)


@constant_to_compiler
def _expansion_program(l_max: int) -> Contraction:
    """For the compiler, which does not look inside."""
    return program_of(ExpansionRequest(l_max))


class CartesianExpansion(torch.nn.Module):
    """Irreducible Cartesian tensors of ranks 0..l_max of the directions of vectors.

    The tensor of rank l is the traceless part of u^l in an orthonormal basis, scaled to the squared norm 2l + 1; rank 1
    is sqrt(3) (x, y, z).

    Args:
        l_max: highest rank.
        backend: `torch` or `triton`.
    """

    def __init__(self, l_max: int, backend: str = "torch") -> None:
        super().__init__()
        self.l_max, self.backend = l_max, backend

    def forward(self, edge_vectors: Tensor) -> Tensor:
        """Expand.

        Args:
            edge_vectors: [n_edges, 3], any unit; no zero vectors (their direction is undefined: NaN).

        Returns:
            [n_edges, (l_max + 1)^2], by rank.
        """
        unit = edge_vectors / edge_vectors.norm(dim=1, keepdim=True)
        return contract(_expansion_program(self.l_max), [unit], backend=self.backend)[0]
