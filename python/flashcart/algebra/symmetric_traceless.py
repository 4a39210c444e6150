"""Orthonormal bases of the symmetric traceless tensors, exactly.

A symmetric tensor A of rank l is the polynomial A(u) = A : u^l, and the full contraction of two tensors is the apolar
product <A, B> = sum over monomials of a_n b_n n!/l! where A = sum a_n u^n (n a multi-index). Traceless means harmonic.
So a basis tensor is a harmonic polynomial of unit apolar norm, held as a rational polynomial and one rational square.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb, factorial

from sympy import QQ, Rational, sqrt
from sympy.polys.rings import PolyElement, ring

RING, X, Y, Z = ring("x,y,z", QQ)


@dataclass(frozen=True)
class BasisTensor:
    """The symmetric traceless tensor `sqrt(square) * polynomial`, of unit norm."""

    polynomial: PolyElement
    square: Rational


def apolar(first: PolyElement, second: PolyElement, rank: int) -> Rational:
    """Full contraction of two symmetric tensors of one rank, given as polynomials."""
    total = Rational(0)
    for exponents, value in first.terms():
        other = second.get(exponents, 0)
        if other:
            weight = Rational(factorial(exponents[0]) * factorial(exponents[1]) * factorial(exponents[2]))
            total += (
                Rational(value.numerator, value.denominator) * Rational(other.numerator, other.denominator) * weight
            )
    return total / factorial(rank)


@cache
def basis(rank: int) -> tuple[BasisTensor, ...]:
    """The 2 rank + 1 basis tensors: x, y, z for rank 1; else by m = -rank .. rank.

    The polynomials are the real solid harmonics, Re or Im of (x + iy)^|m| times a polynomial in z and x^2 + y^2: of the
    orthonormal bases they couple with the fewest coefficients.
    """
    polynomials = [X, Y, Z] if rank == 1 else [_solid_harmonic(rank, m) for m in range(-rank, rank + 1)]
    return tuple(BasisTensor(p, 1 / apolar(p, p, rank)) for p in polynomials)


def _solid_harmonic(rank: int, m: int) -> PolyElement:
    """A harmonic polynomial of the given order: sum_k c_k (x^2+y^2)^k z^(l-|m|-2k) * Re or Im (x+iy)^|m|.

    Laplace's equation gives c_(k+1) = -c_k (l-|m|-2k)(l-|m|-2k-1) / (4 (k+1) (k+1+|m|)).
    """
    order = abs(m)
    axial, factor = RING(0), QQ(1)
    for k in range((rank - order) // 2 + 1):
        power = rank - order - 2 * k
        axial += factor * (X**2 + Y**2) ** k * Z**power
        factor = -factor * QQ(power * (power - 1), 4 * (k + 1) * (k + 1 + order))
    planar = RING(0)
    for j in range(order + 1):  # (x + iy)^order: i^j is real for even j, imaginary for odd j
        if (j % 2 == 0) == (m >= 0):
            planar += QQ(comb(order, j) * (-1) ** (j // 2)) * X ** (order - j) * Y**j
    return axial * planar


@cache
def component_norm(rank: int) -> Rational:
    """Square of the factor that gives the tensor of a unit vector the squared norm 2 rank + 1.

    The projection of u^l on the traceless tensors has the squared norm l!/(2l-1)!! (mathematics of T:T).
    """
    odd = 1
    for value in range(2 * rank - 1, 0, -2):
        odd *= value
    return Rational((2 * rank + 1) * odd, factorial(rank))


@cache
def full_tensors(rank: int) -> tuple[tuple[float, ...], ...]:
    """The basis as full Cartesian tensors: for each basis tensor its 3^rank entries in row-major order."""
    rows = []
    for tensor in basis(rank):
        scale = sqrt(tensor.square)
        entries = []
        for place in range(3**rank):
            digits = [(place // 3 ** (rank - 1 - axis)) % 3 for axis in range(rank)]
            counts = tuple(digits.count(axis) for axis in range(3))
            value = tensor.polynomial.get(counts, QQ(0))
            orderings = factorial(rank) // (factorial(counts[0]) * factorial(counts[1]) * factorial(counts[2]))
            entries.append(float(scale * Rational(value.numerator, value.denominator) / orderings))
        rows.append(tuple(entries))
    return tuple(rows)
