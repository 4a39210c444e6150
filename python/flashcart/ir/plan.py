"""How to run a contraction: the plans that emitters turn into text.

Two plans, both read off the terms alone, so that derivatives of every order get them too:

- `MonomialPlan`, always possible: per row, products of input components ("monomials") times one constant matrix.
- `WalkPlan`, for sums over the edges of a receiver: every term holds one component k of an array that lives on
  receivers (the pivot), one component j of an edge array without channels, and one component each of the remaining
  per-channel roles (together the index q). Then K[k, (q, j)] is one matrix for the whole program and is applied once
  per receiver, while edges only see the small products q times j.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from flashcart.ir.contraction import Contraction, Index, Operand, Term

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MonomialGroup:
    """`output += matrix @ product over slots of inputs[slot][components]`, monomials as columns.

    Attributes:
        output: output slot.
        slots: input slots of the factors (a slot stands twice in a square).
        components: one tuple per slot, the component of each monomial.
        matrix: [output components, monomials].
    """

    output: int
    slots: tuple[int, ...]
    components: tuple[tuple[int, ...], ...]
    matrix: Matrix


@dataclass(frozen=True)
class MonomialPlan:
    """Groups of monomials with the same output and the same factor slots."""

    groups: tuple[MonomialGroup, ...]


@dataclass(frozen=True)
class Run:
    """Consecutive q whose component of each rest role is either constant or counts up.

    Attributes:
        start, stop: positions within the block.
        components: per rest role the range (first, last + 1) of its components; a range of length one is broadcast.
    """

    start: int
    stop: int
    components: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Block:
    """All q that meet the same components of the edge array (in a product: one rank of the edge tensor)."""

    edge_components: tuple[int, int]  # range
    runs: tuple[Run, ...]
    matrix: Matrix  # [pivot components, n_q * n_edge_components], q major

    @property
    def n_q(self) -> int:
        """Number of q in the block."""
        return self.runs[-1].stop

    @property
    def n_edge(self) -> int:
        """Number of edge components in the block."""
        return self.edge_components[1] - self.edge_components[0]


@dataclass(frozen=True, order=True)
class Variant:
    """One assignment of arrays to roles; each is ("in" | "out", slot), exactly one of them "out"."""

    pivot: tuple[str, int]
    edge: tuple[str, int]
    rest: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class WalkPlan:
    """A program as a walk over the edges of each receiver."""

    rest_roles: tuple[int, ...]
    blocks: tuple[Block, ...]
    variants: tuple[Variant, ...]


def monomial_plan(program: Contraction) -> MonomialPlan:
    """Group the terms of any contraction into monomials times matrices."""
    grouped: dict[tuple[int, tuple[int, ...]], list[Term]] = defaultdict(list)
    for term in program.terms:
        grouped[term.output[0], tuple(slot for slot, _ in term.factors)].append(term)
    groups = []
    for (output, slots), terms in sorted(grouped.items()):
        columns = {value: place for place, value in enumerate(sorted({_factor_components(t) for t in terms}))}
        matrix = np.zeros((program.outputs[output].components, len(columns)))
        for term in terms:
            matrix[term.output[1], columns[_factor_components(term)]] += term.coefficient
        components = tuple(tuple(column[place] for column in columns) for place in range(len(slots)))
        groups.append(MonomialGroup(output, slots, components, matrix))
    return MonomialPlan(tuple(groups))


def _factor_components(term: Term) -> tuple[int, ...]:
    return tuple(component for _, component in term.factors)


def walk_plan(program: Contraction) -> WalkPlan | None:
    """The walk of a contraction, or None where its terms have not the form of one."""
    roles = _roles(program)
    if roles is None:
        return None
    pivot_role, edge_role, rest_roles = roles
    couplings: dict[tuple[tuple[int, ...], int, int], float] = {}
    variants = set()
    for term in program.terms:
        placed = _by_role(program, term)
        if set(placed) != {pivot_role, edge_role, *rest_roles}:
            return None
        q = tuple(placed[role][2] for role in rest_roles)
        name = (q, placed[edge_role][2], placed[pivot_role][2])
        if couplings.setdefault(name, term.coefficient) != term.coefficient:
            return None
        variants.add(
            Variant(placed[pivot_role][:2], placed[edge_role][:2], tuple(placed[role][:2] for role in rest_roles))
        )
    blocks = _blocks(couplings, _components_of_role(program, pivot_role))
    if blocks is None:
        return None
    return WalkPlan(rest_roles, blocks, tuple(sorted(variants)))


def _roles(program: Contraction) -> tuple[int, int, tuple[int, ...]] | None:
    """Pivot, edge and remaining roles, where every operand of each role is of the right kind."""
    operands = program.inputs + program.outputs
    pivot = program.pivot_role
    edge = {o.role for o in operands if o.index is Index.ROW and not o.channels}
    rest = tuple(sorted({o.role for o in operands} - edge - {pivot}))
    if len(edge) != 1 or pivot in edge or len(rest) not in (1, 2):
        return None

    def fits(operand: Operand) -> bool:
        if operand.role == pivot:
            return operand.index is Index.RECEIVER and operand.channels == "c"
        if operand.role in edge:
            return operand.index is Index.ROW and not operand.channels
        return operand.channels == "c" and operand.index is not Index.RECEIVER

    return (pivot, edge.pop(), rest) if all(fits(o) for o in operands) else None


def _by_role(program: Contraction, term: Term) -> dict[int, tuple[str, int, int]]:
    """Role -> (kind, slot, component) of a term; a role met twice is marked so that no walk fits."""
    slot, component = term.output
    placed = {program.outputs[slot].role: ("out", slot, component)}
    for slot, component in term.factors:
        role = program.inputs[slot].role
        if role in placed:
            return {}
        placed[role] = ("in", slot, component)
    return placed


def _components_of_role(program: Contraction, role: int) -> int:
    return max(o.components for o in program.inputs + program.outputs if o.role == role)


def _blocks(couplings: dict[tuple[tuple[int, ...], int, int], float], n_pivot: int) -> tuple[Block, ...] | None:
    met: dict[tuple[int, ...], set[int]] = defaultdict(set)
    for q, edge, _ in couplings:
        met[q].add(edge)
    spans = _merge_spans([(min(edges), max(edges) + 1) for edges in met.values()])
    blocks = []
    for low, high in spans:
        members = sorted((q for q, edges in met.items() if low <= min(edges) < high), key=lambda q: q[::-1])
        place = {q: number for number, q in enumerate(members)}
        matrix = np.zeros((n_pivot, len(members), high - low))
        for (q, edge, pivot), value in couplings.items():
            if q in place:
                matrix[pivot, place[q], edge - low] = value
        blocks.append(Block((low, high), _runs(members), matrix.reshape(n_pivot, -1)))
    return tuple(blocks) if blocks else None


def _merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint ranges that cover the given ones."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(set(spans)):
        if merged and low < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _runs(members: list[tuple[int, ...]]) -> tuple[Run, ...]:
    """Cut the sorted q into runs: the first role counts up, the others stay."""
    runs: list[Run] = []
    start = 0
    for place in range(1, len(members) + 1):
        if place < len(members):
            expected = (members[place - 1][0] + 1, *members[place - 1][1:])
            if members[place] == expected:
                continue
        first = members[start]
        spans = [(first[0], members[place - 1][0] + 1)] + [(value, value + 1) for value in first[1:]]
        runs.append(Run(start, place, tuple(spans)))
        start = place
    return tuple(runs)
