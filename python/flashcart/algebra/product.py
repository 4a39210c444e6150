"""Coupling coefficients of irreducible Cartesian products, exactly.

The path (l1, l2 -> l3) with l1 + l2 - l3 = 2k contracts k index pairs of the two tensors, symmetrises and removes
traces. On polynomials, contracting k pairs is sum over |a| = k of (k!/a!) D^a A D^a B (l1-k)!(l2-k)!/(l1! l2!), and
projecting on an orthonormal traceless basis symmetrises and detraces at once. Only even l1 + l2 - l3 keeps natural
parity.
"""

from __future__ import annotations

from functools import cache
from math import factorial

from sympy import QQ, Rational, sqrt
from sympy.polys.rings import PolyElement

from flashcart.algebra.symmetric_traceless import RING, X, Y, Z, apolar, basis
from flashcart.ir.ranks import Path


@cache
def cartesian_coupling(path: Path) -> dict[tuple[int, int, int], Rational]:
    """Coefficients of the plain Cartesian product in the orthonormal bases, (m1, m2, m3) -> value (exact)."""
    l1, l2, l3 = path.l_first, path.l_second, path.l_out
    if (l1 + l2 - l3) % 2 or not abs(l1 - l2) <= l3 <= l1 + l2:
        raise ValueError(f"({l1}, {l2} -> {l3}) is not an even path")
    pairs = (l1 + l2 - l3) // 2
    scale = Rational(factorial(l1 - pairs) * factorial(l2 - pairs), factorial(l1) * factorial(l2))
    first = [_derivatives(t.polynomial, pairs) for t in basis(l1)]
    second = [_derivatives(t.polynomial, pairs) for t in basis(l2)]
    values = {}
    for m1, left in enumerate(first):
        for m2, right in enumerate(second):
            product = sum((weight * left[a] * right[a] for a, weight in _multi_indices(pairs).items()), RING(0))
            for m3, tensor in enumerate(basis(l3)):
                value = scale * apolar(product, tensor.polynomial, l3)
                if value:
                    root = sqrt(basis(l1)[m1].square * basis(l2)[m2].square * tensor.square)
                    values[m1, m2, m3] = value * root
    return values


@cache
def coupling_square(path: Path) -> Rational:
    """lambda^2: the Cartesian product is lambda times the real Clebsch-Gordan coupling.

    A Clebsch-Gordan coupling has sum of squares 2 l3 + 1, so lambda^2 is the sum of squares divided by it.
    """
    total = sum((value**2 for value in cartesian_coupling(path).values()), Rational(0))
    return Rational(total) / (2 * path.l_out + 1)


@cache
def normalised_coupling(path: Path) -> dict[tuple[int, int, int], float]:
    """The coupling divided by |lambda|: independent unit-variance inputs give unit-variance outputs on every path."""
    root = sqrt(coupling_square(path))
    return {place: float(value / root) for place, value in cartesian_coupling(path).items()}


@cache
def _multi_indices(total: int) -> dict[tuple[int, int, int], QQ]:
    return {
        (a, b, total - a - b): QQ(factorial(total), factorial(a) * factorial(b) * factorial(total - a - b))
        for a in range(total + 1)
        for b in range(total + 1 - a)
    }


def _derivatives(polynomial: PolyElement, order: int) -> dict[tuple[int, int, int], PolyElement]:
    results = {}
    for index in _multi_indices(order):
        value = polynomial
        for variable, times in zip((X, Y, Z), index, strict=True):
            for _ in range(times):
                value = value.diff(variable)
        results[index] = value
    return results
