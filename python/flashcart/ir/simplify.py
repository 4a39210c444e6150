"""Canonical form of a list of terms: factors sorted, equal terms merged, zeros dropped."""

from __future__ import annotations

from collections.abc import Iterable

from flashcart.ir.contraction import Contraction, Operand, Term

# Coupling coefficients are of order 0.1 to 1; what a sum of cancelling ones leaves is rounding.
NEGLIGIBLE = 1e-13


def merge_terms(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Sort the factors of each term, add up equal terms, drop those that cancel, and sort."""
    sums: dict[tuple[tuple[int, int], tuple[tuple[int, int], ...]], float] = {}
    for term in terms:
        name = (term.output, tuple(sorted(term.factors)))
        sums[name] = sums.get(name, 0.0) + term.coefficient
    kept = [Term(output, factors, value) for (output, factors), value in sums.items() if abs(value) > NEGLIGIBLE]
    return tuple(sorted(kept))


def contraction(inputs: Iterable[Operand], outputs: Iterable[Operand], terms: Iterable[Term]) -> Contraction:
    """Build a contraction in canonical form."""
    return Contraction(tuple(inputs), tuple(outputs), merge_terms(terms))
