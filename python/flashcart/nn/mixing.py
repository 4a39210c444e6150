"""Linear maps that commute with rotations: one matrix per rank, over channels, or over paths and channels."""

from __future__ import annotations

from collections.abc import Sequence

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
        n = x.shape[0]
        x = x.transpose(0, 1)  # component first: the rows of one rank are contiguous
        results, start = [], 0
        number = element * sum(count > 0 for count in self.paths)
        for rank, count in enumerate(self.paths):
            size = 2 * rank + 1
            if count == 0:
                results.append(x.new_zeros(size, n, self.out_channels))
                continue
            part = x[start : start + count * size].reshape(count, size, n, self.in_channels)
            flat = part.permute(1, 2, 0, 3).reshape(size * n, count * self.in_channels)
            matrix = self.matrices[number] * (count * self.in_channels) ** -0.5
            results.append((flat @ matrix).view(size, n, self.out_channels))
            start, number = start + count * size, number + 1
        return torch.cat(results).transpose(0, 1)
