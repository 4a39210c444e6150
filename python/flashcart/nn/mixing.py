"""Linear maps that commute with rotations: one matrix per rank, over channels, or over paths and channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flashcart.ir.contraction import Contraction
from flashcart.ir.requests import LinearRequest
from flashcart.nn.expansion import program_of
from flashcart.ops.compilation import constant_to_compiler
from flashcart.ops.contract import contract


@constant_to_compiler
def _linear_program(paths: tuple[int, ...], per_element: bool) -> Contraction:
    """For the compiler, which does not look inside and takes plain constants only."""
    return program_of(LinearRequest(paths, per_element))


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
        backend: `torch` or `triton`.
    """

    def __init__(
        self,
        paths: Sequence[int],
        in_channels: int,
        out_channels: int,
        *,
        n_elements: int | None = None,
        zero: bool = False,
        backend: str = "torch",
    ) -> None:
        super().__init__()
        self.paths, self.in_channels, self.out_channels = tuple(paths), in_channels, out_channels
        self.n_elements, self.backend = n_elements, backend
        self._joined: _Joined | None = None
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

        Raises:
            ValueError: species are missing, or shapes do not fit.
        """
        if self.n_elements is not None and species is None:
            raise ValueError("species: needed, since each element has its own matrices")
        program = _linear_program(self.paths, self.n_elements is not None)
        ends: dict[str, Any] = {} if self.n_elements is None else {"senders": species, "n_nodes": self.n_elements}
        return contract(program, [x, self._stacked()], **ends, backend=self.backend)[0]

    def _stacked(self) -> Tensor:
        """All matrices as one array, [1 or n_elements, paths, in_channels, out_channels], scaled for in_channels.

        Frozen matrices are joined once: joined again when one has been written to or replaced.
        """
        matrices: list[Any] = list(self.matrices._parameters.values())  # the public ways take ten times as long
        frozen = not (torch.compiler.is_compiling() or any(matrix.requires_grad for matrix in matrices))
        if frozen and self._joined is not None and self._joined.is_of(matrices):
            return self._joined.array
        joined = torch.cat(matrices).view(self.n_elements or 1, -1, self.in_channels, self.out_channels)
        joined = joined * self.in_channels**-0.5
        self._joined = _Joined.of(matrices, joined) if frozen else None
        return joined


@dataclass(frozen=True)
class _Joined:
    """What was joined, kept alive so that its memory is not given to something else, its versions, and the result."""

    parts: list[Tensor]
    versions: list[int]
    array: Tensor

    @staticmethod
    def of(matrices: list[Tensor], array: Tensor) -> _Joined:
        return _Joined([m.detach() for m in matrices], [m._version for m in matrices], array)

    def is_of(self, matrices: list[Tensor]) -> bool:
        return self.versions == [matrix._version for matrix in matrices] and all(
            part.data_ptr() == matrix.data_ptr() for part, matrix in zip(self.parts, matrices, strict=True)
        )
