"""Linear maps over channels and their derivatives as matrix products.

Takes a contraction with both channel axes, returns a `LinearPlan`. Every term holds one array over `c`, one over `d`
and one of matrices over both, one of the three as the output. The components of a rank form a block: matrix j of it
takes component (j, m) of the `c` array to component m of the `d` array, or is the sum over m of their outer products.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

from flashcart.ir.contraction import Contraction, Operand, Term


@dataclass(frozen=True)
class LinearBlock:
    """The matrices of one rank.

    Attributes:
        matrix: first matrix component; c, d: first component of the arrays over `c` and `d`.
        paths: number of matrices.
        size: components of the rank, 2l + 1; matrix j, component m belong to `c + j * size + m` and `d + m`.
        coefficient: of all terms.
    """

    matrix: int
    c: int
    d: int
    paths: int
    size: int
    coefficient: float


@dataclass(frozen=True, order=True)
class LinearVariant:
    """One matrix product: where the three arrays are, as ("in" or "out", slot)."""

    c: tuple[str, int]
    d: tuple[str, int]
    matrix: tuple[str, int]

    @property
    def output(self) -> tuple[str, int]:
        """What is computed, and its slot: ("c", 0) for an array over `c`."""
        for axes, (kind, slot) in (("c", self.c), ("d", self.d), ("cd", self.matrix)):
            if kind == "out":
                return axes, slot
        raise ValueError("a matrix product without an output")


@dataclass(frozen=True)
class LinearPlan:
    """Blocks that all variants share, and the variants."""

    blocks: tuple[LinearBlock, ...]
    variants: tuple[LinearVariant, ...]

    def of_output(self, slot: int) -> tuple[LinearVariant, ...]:
        """The variants whose sum is an output."""
        return tuple(variant for variant in self.variants if variant.output[1] == slot)


@lru_cache(maxsize=256)
def linear_plan(program: Contraction) -> LinearPlan:
    """The matrix products that a contraction with both channel axes consists of.

    Raises:
        ValueError: the contraction is no linear map or derivative of one.
    """
    triples: dict[LinearVariant, dict[tuple[int, int, int], float]] = defaultdict(dict)
    for term in program.terms:
        variant, components = _place(program, term)
        triples[variant][components] = term.coefficient
    blocks = {variant: _blocks(found) for variant, found in triples.items()}
    if len(set(blocks.values())) > 1:
        raise ValueError("not a linear map: its matrix products have different components")
    return LinearPlan(next(iter(blocks.values()), ()), tuple(sorted(blocks)))


def _place(program: Contraction, term: Term) -> tuple[LinearVariant, tuple[int, int, int]]:
    """The variant that a term belongs to, and its components of matrix, `c` and `d`."""
    found: dict[str, tuple[tuple[str, int], int]] = {}
    entries: list[tuple[Operand, str, int, int]] = [(program.outputs[term.output[0]], "out", *term.output)]
    entries += [(program.inputs[slot], "in", slot, component) for slot, component in term.factors]
    for operand, kind, slot, component in entries:
        found[operand.channels] = ((kind, slot), component)
    if set(found) != {"c", "d", "cd"} or len(entries) != 3:
        raise ValueError("not a linear map: a term needs one array over c, one over d and one of matrices")
    variant = LinearVariant(found["c"][0], found["d"][0], found["cd"][0])
    return variant, (found["cd"][1], found["c"][1], found["d"][1])


def _blocks(coefficients: dict[tuple[int, int, int], float]) -> tuple[LinearBlock, ...]:
    """Matrices with the same `d` components and coefficient whose `c` components follow each other."""
    by_matrix: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for triple in sorted(coefficients):
        by_matrix[triple[0]].append(triple)
    blocks: list[LinearBlock] = []
    for matrix, found in by_matrix.items():
        _, c, d = found[0]
        size, value = len(found), coefficients[found[0]]
        if any(t != (matrix, c + m, d + m) or coefficients[t] != value for m, t in enumerate(found)):
            raise ValueError("not a linear map: the components of a matrix do not follow each other")
        last = blocks[-1] if blocks else None
        if last is not None and (last.matrix + last.paths, last.c + last.paths * size, last.d, last.size) == (
            matrix,
            c,
            d,
            size,
        ):
            blocks[-1] = LinearBlock(last.matrix, last.c, d, last.paths + 1, size, value)
        else:
            blocks.append(LinearBlock(matrix, c, d, 1, size, value))
    return tuple(blocks)
