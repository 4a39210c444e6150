"""Constant matrices of coupling coefficients, applied from the left."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# Coupling matrices are 1 to 5 % full. On a CPU a sparse product is then 4 to 15 times faster than a dense one
# (benchmarks/cpu.py, --tables); elsewhere dense products are the well-trodden path.
SPARSE_BELOW = 0.2


@dataclass(frozen=True)
class Table:
    """A matrix and its transpose, in the form that multiplies fastest."""

    matrix: Tensor
    transpose: Tensor

    @classmethod
    def of_entries(
        cls,
        n_rows: int,
        n_columns: int,
        entries: Sequence[tuple[int, int, float]],
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> Table:
        """Build from (row, column, value) entries."""
        dense = torch.zeros(n_rows, n_columns, dtype=torch.float64)
        for row, column, value in entries:
            dense[row, column] = value
        dense = dense.to(device=device, dtype=dtype)
        if device.type != "cpu" or len(entries) > SPARSE_BELOW * n_rows * n_columns:
            return cls(dense, dense.t().contiguous())
        return cls(_sparse(dense), _sparse(dense.t().contiguous()))

    def times(self, x: Tensor) -> Tensor:
        """matrix @ x, x [columns, n]."""
        return self.matrix @ x

    def transposed_times(self, x: Tensor) -> Tensor:
        """matrix^T @ x, x [rows, n]."""
        return self.transpose @ x


def _sparse(dense: Tensor) -> Tensor:
    """Compressed rows with 32-bit indices, which MKL takes as they are."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # "beta state"; and a notice about unchecked invariants
        matrix = dense.to_sparse_csr()
        return torch.sparse_csr_tensor(
            matrix.crow_indices().int(), matrix.col_indices().int(), matrix.values(), size=matrix.shape
        )
