"""Full Cartesian tensors to and from components, and rotation of tensors in component form.

In component form a tensor of rank l holds its 2l + 1 components in an orthonormal basis of the symmetric traceless
tensors, and a tensor of ranks 0..l_max holds one rank after the other (`rank_slice`). The full form has l axes of size
3. Both conversions are isometries, so that dot products of components are full contractions. Rank 1 is x, y, z.

Everything here is differentiable in its tensors. sympy is imported at the first use of a rank above 1.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from flashcart.errors import UserError
from flashcart.ir.ranks import components, rank_slice

__all__ = ["components", "from_cartesian", "rank_slice", "rotate", "to_cartesian"]


def to_cartesian(x: Tensor, l: int, dim: int = 1) -> Tensor:
    """Write the components of one rank as a full symmetric traceless tensor.

    Args:
        x: [..., 2l + 1, ...], components along `dim`.
        l: the rank.
        dim: the component axis of `x`.

    Returns:
        `x` with axis `dim` replaced by l axes of size 3: [n, 2l + 1, channels] becomes [n, 3, .., 3, channels]; for
        l = 0 the axis is dropped.

    Raises:
        UserError: the rank is negative, or the axis has not 2l + 1 entries.
    """
    dim = _axis(dim, x.ndim)
    _check_rank(l)
    if x.shape[dim] != 2 * l + 1:
        raise UserError(f"to_cartesian: rank {l} has {2 * l + 1} components, axis {dim} of {list(x.shape)} has not.")
    full = torch.tensordot(x.movedim(dim, -1), _basis(l, x.dtype, x.device), dims=1)
    return full.movedim(-1, dim).unflatten(dim, (3,) * l) if l else full.squeeze(-1)


def from_cartesian(t: Tensor, l: int, dim: int = 1) -> Tensor:
    """Components of the symmetric traceless part of full tensors; the inverse of `to_cartesian`.

    Args:
        t: [..., 3, .., 3, ...], l axes of size 3 from `dim` on. What is not symmetric and traceless is projected out.
        l: the rank.
        dim: the component axis of the result.

    Returns:
        `t` with the l axes replaced by one of size 2l + 1.

    Raises:
        UserError: the rank is negative, or the l axes are not all of size 3.
    """
    _check_rank(l)
    dim = _axis(dim, t.ndim - l + 1)
    if t.shape[dim : dim + l] != (3,) * l:
        raise UserError(f"from_cartesian: rank {l} needs {l} axes of size 3 from axis {dim} on, got {list(t.shape)}.")
    flat = t.flatten(dim, dim + l - 1) if l else t.unsqueeze(dim)
    return torch.tensordot(flat.movedim(dim, -1), _basis(l, t.dtype, t.device).t(), dims=1).movedim(-1, dim)


def rotate(x: Tensor, rotation: Tensor, dim: int = 1) -> Tensor:
    """Rotate (or reflect) a tensor that holds all ranks 0..l_max.

    A vector v becomes `rotation @ v`; a tensor of rank l is turned at each of its l indices. Parity is natural: the
    inversion multiplies rank l by (-1)^l.

    Args:
        x: [..., (l_max + 1)^2, ...], components along `dim`, by rank.
        rotation: [3, 3], orthogonal; determinant 1 or -1.
        dim: the component axis of `x`.

    Returns:
        A tensor of the shape of `x`.

    Raises:
        UserError: the axis has not (l_max + 1)^2 entries for any l_max, or the matrix is not orthogonal.
    """
    dim = _axis(dim, x.ndim)
    l_max = math.isqrt(x.shape[dim]) - 1
    if l_max < 0 or components(l_max) != x.shape[dim]:
        raise UserError(
            f"rotate: {x.shape[dim]} components (axis {dim} of {list(x.shape)}) are not all ranks up to any."
        )
    rotation = _orthogonal(rotation).to(dtype=x.dtype, device=x.device)
    rows = x.movedim(dim, -1)
    parts = [rows[..., rank_slice(l)] @ _rank_rotation(rotation, l).t() for l in range(l_max + 1)]
    return torch.cat(parts, dim=-1).movedim(-1, dim)


def _orthogonal(rotation: Tensor) -> Tensor:
    """The matrix, or an error; the tolerance allows for matrices that were rounded to float32."""
    if rotation.shape != (3, 3):
        raise UserError(f"rotate: expected a 3x3 matrix, got shape {list(rotation.shape)}.")
    error = (
        rotation.detach() @ rotation.detach().t() - torch.eye(3, dtype=rotation.dtype, device=rotation.device)
    ).abs()
    if not bool(error.max() < 1e-5):
        raise UserError(f"rotate: the matrix is not orthogonal (R R^T differs from 1 by {float(error.max()):.1e}).")
    return rotation


def _rank_rotation(rotation: Tensor, l: int) -> Tensor:
    """[2l + 1, 2l + 1]: how the components of rank l turn."""
    basis = _basis(l, rotation.dtype, rotation.device)
    turned = basis.view(2 * l + 1, *(3,) * l)
    for axis in range(1, l + 1):
        turned = torch.tensordot(turned, rotation, dims=([axis], [1])).movedim(-1, axis)
    return basis @ turned.reshape(2 * l + 1, -1).t()


def _axis(dim: int, ndim: int) -> int:
    if not -ndim <= dim < ndim:
        raise UserError(f"dim={dim}: the tensor in component form has {ndim} axes.")
    return dim % ndim


def _check_rank(l: int) -> None:
    if l < 0:
        raise UserError(f"l={l}: a rank is at least 0.")


@lru_cache(maxsize=64)
def _basis(l: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """[2l + 1, 3^l]: the basis tensors of rank l, indices in row-major order."""
    if l <= 1:  # the unit, and x, y, z: needs no algebra
        return torch.eye(2 * l + 1, dtype=dtype, device=device)
    from flashcart.algebra.symmetric_traceless import full_tensors

    return torch.tensor(full_tensors(l), dtype=torch.float64).to(dtype=dtype, device=device)
