"""Random rotations and reflections, and the check of equivariance that several folders use."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor


def random_rotation(seed: int, *, proper: bool = True) -> Tensor:
    """[3, 3] float64, determinant 1, or -1 if not proper."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=generator))
    return q * torch.linalg.det(q).sign() * (1 if proper else -1)


ORTHOGONAL = {
    "rotation": random_rotation(0),
    "another rotation": random_rotation(1),
    "rotation and reflection": random_rotation(2, proper=False),
    "inversion": -torch.eye(3, dtype=torch.float64),
    "mirror": torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)),
}

every_orthogonal_matrix = pytest.mark.parametrize("matrix", ORTHOGONAL.values(), ids=ORTHOGONAL.keys())


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Standard normal float64 numbers."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(result: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Equal up to rounding: relative to the largest entry, which must not be zero (nothing passes vacuously)."""
    scale = float(expected.detach().abs().max())
    assert scale > 1e-8
    torch.testing.assert_close(result, expected, rtol=0, atol=tolerance * max(scale, 1.0))
