"""Linear maps that commute with rotations: one matrix per rank, over channels, or over paths and channels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from flashcart.ir.ranks import components


class EquivariantLinear(torch.nn.Module):
    """One matrix per rank, shared by the components of the rank; optionally one set per element.

    Entries start as N(0, 1); 1/sqrt(fan-in) is applied at run time, so that the learning rate means the same for every
    width. Each matrix is a 2-D parameter of its own, which is what Muon takes.

    Args:
        paths: number of paths of each rank 0..l_max in the input (all ones: a plain tensor). A rank without paths gives
            zeros.
        in_channels, out_channels: channels.
        n_elements: a set of matrices per element where given.
        zero: start with zero matrices.
    """

    def __init__(
        self,
        paths: Sequence[int],
        in_channels: int,
        out_channels: int,
        *,
        n_elements: int | None = None,
        zero: bool = False,
    ) -> None:
        super().__init__()
        self.paths, self.in_channels, self.out_channels = tuple(paths), in_channels, out_channels
        self.n_elements = n_elements
        start = torch.zeros if zero else torch.randn
        self.matrices = torch.nn.ParameterList(
            torch.nn.Parameter(start(count * in_channels, out_channels))
            for _ in range(n_elements or 1)
            for count in self.paths
            if count
        )

    @property
    def l_max(self) -> int:
        """Highest rank."""
        return len(self.paths) - 1

    def forward(self, x: Tensor, species: Tensor | None = None) -> Tensor:
        """Map.

        Args:
            x: [n, sum over ranks of paths * (2l + 1), in_channels], by rank, then path, then component.
            species: [n] int64, needed with matrices per element.

        Returns:
            [n, (l_max + 1)^2, out_channels].
        """
        if self.n_elements is None:
            return self._map(x, 0)
        assert species is not None
        out = x.new_zeros(components(self.l_max), x.shape[0], self.out_channels).transpose(0, 1)
        for element in range(self.n_elements):
            rows = torch.nonzero(species == element).squeeze(1)
            out = out.index_add(0, rows, self._map(x.index_select(0, rows), element))
        return out

    def _map(self, x: Tensor, element: int) -> Tensor:
        n_matrices = sum(count > 0 for count in self.paths)
        matrices = list(self.matrices)[element * n_matrices : (element + 1) * n_matrices]
        if all(count == 1 for count in self.paths):
            return self._one_path(x, matrices)
        n, results, given = x.shape[0], [], iter(matrices)
        sizes = [count * (2 * rank + 1) for rank, count in enumerate(self.paths)]
        parts = x.transpose(0, 1).split(sizes)  # component first: the rows of one rank are contiguous
        for rank, (count, part) in enumerate(zip(self.paths, parts, strict=True)):
            if count == 0:
                results.append(x.new_zeros(2 * rank + 1, n, self.out_channels))
                continue
            width = count * self.in_channels
            flat = part.reshape(count, -1, self.in_channels).transpose(0, 1).reshape(-1, width)
            results.append((flat @ (next(given) * width**-0.5)).view(2 * rank + 1, n, self.out_channels))
        return torch.cat(results).transpose(0, 1)

    def _one_path(self, x: Tensor, matrices: list[Tensor]) -> Tensor:
        """One batched product: each component with the matrix of its rank."""
        stacked = torch.stack(matrices) * self.in_channels**-0.5
        return torch.bmm(x.transpose(0, 1), per_component_matrix(stacked)).transpose(0, 1)


def per_component_matrix(matrices: Tensor) -> Tensor:
    """[l_max + 1, a, b] -> [(l_max + 1)^2, a, b]: each rank's matrix for each of its components."""
    return matrices.index_select(0, rank_of_component(matrices.shape[0] - 1, matrices.device))


def rank_of_component(l_max: int, device: torch.device) -> Tensor:
    """[(l_max + 1)^2] int64: the rank of every component."""
    # A tensor made while tracing belongs to that graph, one made before cannot enter it.
    return _rank_of_component(l_max, device) if torch.compiler.is_compiling() else _kept_ranks(l_max, device)


def _rank_of_component(l_max: int, device: torch.device) -> Tensor:
    return torch.tensor([rank for rank in range(l_max + 1) for _ in range(2 * rank + 1)], device=device)


_kept_ranks = lru_cache(maxsize=64)(_rank_of_component)
