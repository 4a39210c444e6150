"""The polynomial envelope that takes every interaction to zero at the cutoff."""

from __future__ import annotations

from torch import Tensor


def envelope(x: Tensor, order: int) -> Tensor:
    """1 - (p+1)(p+2)/2 x^p + p(p+2) x^(p+1) - p(p+1)/2 x^(p+2) below x = 1, zero beyond (Gasteiger et al. 2020).

    Value and the first two derivatives vanish at x = 1.

    Args:
        x: distance over cutoff, any shape.
        order: p.
    """
    p = order
    power = x**p
    value = 1 - 0.5 * (p + 1) * (p + 2) * power + p * (p + 2) * power * x - 0.5 * p * (p + 1) * power * x * x
    return value * (x < 1)
