"""The rows of a linear map, element by element, and the matrix products that generated torch code is made of.

Arrays are component first: `[components, n, channels]`; the matrices of one element are `[paths, c, d]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LinearPart:
    """The rows that use one set of matrices.

    Attributes:
        element: row of the matrix operands.
        rows: [n] int64, or None for all rows.
    """

    element: int
    rows: Tensor | None

    def take(self, x: Tensor) -> Tensor:
        """The part's rows of an operand."""
        return x if self.rows is None else x.index_select(1, self.rows)

    def map(self, out: Tensor, x: Tensor, w: Tensor, first: bool) -> None:
        """out[m, n, d] (+)= sum over path and c of x[(path, m), n, c] w[path, c, d]."""
        if (paths := w.shape[0]) > 1:
            x = x.reshape(paths, -1, x.shape[2]).transpose(0, 1)
        flat = x.reshape(-1, paths * x.shape[2])
        matrix = w.reshape(flat.shape[1], -1)
        if self.rows is None:
            target = out.view(-1, out.shape[2])
            torch.addmm(target, flat, matrix, beta=not first, out=target)
        else:
            self._add(out, (flat @ matrix).view(out.shape[0], -1, out.shape[2]), first)

    def map_back(self, out: Tensor, g: Tensor, w: Tensor, first: bool) -> None:
        """out[(path, m), n, c] (+)= sum over d of g[m, n, d] w[path, c, d]."""
        self.batched(out, _repeated(g, w.shape[0]), w.transpose(1, 2), first)

    def batched(self, out: Tensor, x: Tensor, w: Tensor, first: bool) -> None:
        """out[j] (+)= x[j] @ w[j], components of one j after the other."""
        if self.rows is None:
            target = out.view(x.shape[0], -1, out.shape[2])
            torch.baddbmm(target, x, w, beta=not first, out=target)
        else:
            self._add(out, torch.bmm(x, w).view(out.shape[0], -1, out.shape[2]), first)

    def outer(self, out: Tensor, x: Tensor, g: Tensor, coefficient: float, first: bool) -> None:
        """out[path, c, d] of the element (+)= coefficient * sum over m and n of x[(path, m), n, c] g[m, n, d]."""
        paths, target = out.shape[0], out[:, self.element]
        flat = x.reshape(paths, -1, x.shape[2]).transpose(1, 2)
        torch.baddbmm(target, flat, _repeated(g, paths), beta=not first, alpha=coefficient, out=target)

    def _add(self, out: Tensor, value: Tensor, first: bool) -> None:
        out.index_copy_(1, self.rows, value) if first else out.index_add_(1, self.rows, value)


def _repeated(g: Tensor, paths: int) -> Tensor:
    """[components, n, d] -> [paths, components * n, d] without a copy."""
    return g.reshape(1, -1, g.shape[2]).expand(paths, -1, -1)


def elements(species: Tensor | None, n_elements: int) -> Iterator[LinearPart]:
    """One part for all rows, or one for each element that occurs."""
    if species is None:
        yield LinearPart(0, None)
        return
    found = 0
    for element in range(n_elements):
        rows = torch.nonzero(species == element).squeeze(1)
        found += rows.shape[0]
        if rows.shape[0]:
            yield LinearPart(element, rows)
    if found != species.shape[0]:
        raise IndexError(f"species: expected numbers from 0 to {n_elements - 1}, got others")
