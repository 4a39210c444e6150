"""Coupling coefficients moved out of the loop over a receiver's edges, and products shared by many terms.

Every term of a product and of its derivatives holds one component of each role: a of the first tensor, b of the second,
a path weight p, and k of the original output, times the coupling C[a, b, k]. Three rewritings save arithmetic per edge:

    H[p, a, b] = sum over k of C[a, b, k] g[k]          before the loop, where g belongs to the receiver
    S[p, a]    = sum of weight * first tensor           once per row, for all b and k
    out[k]     = sum over a, b of C[a, b, k] Q[p, a, b] after the loop, where Q[p, a, b] sums S[p, a] y[b] over edges

What is held through the loop grows from the ks to the pairs (a, b), so it is done path by path
(`flashcart.ir.block_choice` says for which).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from flashcart.ir.contraction import Contraction, Term

Factor = tuple[int, int]
Sum = tuple[tuple[float, tuple[Factor, ...]], ...]
Path = tuple[int, ...]


@dataclass(frozen=True)
class Coupled:
    """A launch's terms, rewritten. New inputs and outputs have slots of their own, above those of the program.

    Attributes:
        before: (new input component, sum of input components), once per receiver.
        products: (new input component, sum of products of input components), once per row.
        terms: what is added up per row.
        after: (output component, sum of new output components), once per receiver.
    """

    before: tuple[tuple[Factor, Sum], ...]
    products: tuple[tuple[Factor, Sum], ...]
    terms: tuple[Term, ...]
    after: tuple[tuple[Factor, Sum], ...]


@dataclass(frozen=True)
class PathSize:
    """Counts of one path within a launch: couplings, pairs (a, b), components k."""

    couplings: int
    pairs: int
    components: int


def roles_of(program: Contraction, term: Term) -> dict[int, int] | None:
    """Component of each role in a term; None unless all roles 0..pivot but the weights' occur, each once."""
    found = {program.outputs[term.output[0]].role: term.output[1]}
    for slot, component in term.factors:
        role = program.inputs[slot].role
        if role in found:
            return None
        found[role] = component
    return found if {0, 1, program.pivot_role} <= set(found) and program.pivot_role > 1 else None


def is_trilinear(program: Contraction, terms: tuple[Term, ...]) -> bool:
    """Whether all terms can be rewritten."""
    return program.has_channels and all(roles_of(program, term) is not None for term in terms)


def path_of(program: Contraction, roles: dict[int, int]) -> Path:
    """What tells couplings apart beside (a, b): the path weight, or without weights the ranks of a and b."""
    if 2 in roles and program.pivot_role != 2:
        return (roles[2],)
    by_role = {operand.role: operand for operand in program.inputs + program.outputs}
    return (by_role[0].rank_of(roles[0]), by_role[1].rank_of(roles[1]))


def path_sizes(program: Contraction, terms: tuple[Term, ...]) -> dict[Path, PathSize]:
    """Sizes of the paths of a launch."""
    triples: dict[Path, set[tuple[int, int, int]]] = defaultdict(set)
    for term in terms:
        roles = roles_of(program, term)
        assert roles is not None
        triples[path_of(program, roles)].add((roles[0], roles[1], roles[program.pivot_role]))
    return {
        path: PathSize(len(found), len({(a, b) for a, b, _ in found}), len({k for _, _, k in found}))
        for path, found in triples.items()
    }


def couple(program: Contraction, terms: tuple[Term, ...], inputs: frozenset[Path], outputs: frozenset[Path]) -> Coupled:
    """Rewrite the terms of a launch.

    Args:
        program: the contraction.
        terms: the launch's; `is_trilinear`.
        inputs: paths whose couplings are applied to the original output's cotangent before the loop.
        outputs: paths whose couplings are applied after the loop, where the original output is computed.
    """
    rewriting = _Rewriting(program)
    for term in terms:
        rewriting.add(term, inputs, outputs)
    return rewriting.result()


class _Rewriting:
    """Collects what the terms become."""

    def __init__(self, program: Contraction) -> None:
        self.program, self.pivot = program, program.pivot_role
        # slot (outputs after inputs) -> (path, a, b) -> component
        self.numbers: dict[int, dict[tuple[Path, int, int], int]] = defaultdict(dict)
        self.before: dict[Factor, dict[Factor, float]] = defaultdict(dict)
        self.after: dict[Factor, dict[Factor, float]] = defaultdict(dict)
        # (output, factors beside S) -> coefficient and the products that make up S
        self.sums: dict[tuple[Factor, tuple[Factor, ...]], dict[tuple[Factor, ...], float]] = defaultdict(dict)

    def add(self, term: Term, inputs: frozenset[Path], outputs: frozenset[Path]) -> None:
        """One term."""
        roles = roles_of(self.program, term)
        assert roles is not None
        path = path_of(self.program, roles)
        output, factors, coefficient = term.output, list(term.factors), term.coefficient
        if self.program.outputs[output[0]].role == self.pivot:
            if path in outputs:
                virtual = (
                    len(self.program.outputs) + output[0],
                    self._number(len(self.program.inputs) + output[0], path, roles),
                )
                self.after[output][virtual] = coefficient
                output, coefficient = virtual, 1.0
        elif path in inputs:
            place = next(i for i, (s, _) in enumerate(factors) if self.program.inputs[s].role == self.pivot)
            slot = factors[place][0]
            virtual = (len(self.program.inputs) + slot, self._number(slot, path, roles))
            self.before[virtual][factors[place]] = coefficient
            factors[place], coefficient = virtual, 1.0
        first, others = self._split(output, factors)
        self.sums[output, others][first] = coefficient

    def _number(self, slot: int, path: Path, roles: dict[int, int]) -> int:
        known = self.numbers[slot]
        return known.setdefault((path, roles[0], roles[1]), len(known))

    def _split(self, output: Factor, factors: list[Factor]) -> tuple[tuple[Factor, ...], tuple[Factor, ...]]:
        """(factors of S, the others): first tensor and weight, where neither is what is computed."""
        n_inputs = len(self.program.inputs)
        role = self.program.outputs[output[0] % len(self.program.outputs)].role
        if role not in (1, self.pivot):
            return (), tuple(factors)
        roles = {0, 2} - {self.pivot}
        first = tuple(f for f in factors if f[0] < n_inputs and self.program.inputs[f[0]].role in roles)
        return (first, tuple(f for f in factors if f not in first)) if len(first) == 2 else ((), tuple(factors))

    def result(self) -> Coupled:
        """Everything collected, in a fixed order."""
        products: dict[tuple[tuple[Factor, ...], ...], Factor] = {}
        terms = []
        for (output, others), parts in self.sums.items():
            by_value: dict[float, list[tuple[Factor, ...]]] = defaultdict(list)
            for first, coefficient in parts.items():
                by_value[coefficient].append(first)
            for coefficient, firsts in by_value.items():
                if firsts == [()]:
                    terms.append(Term(output, tuple(sorted(others)), coefficient))
                    continue
                name = tuple(sorted(firsts))
                shared = products.setdefault(name, (2 * len(self.program.inputs), len(products)))
                terms.append(Term(output, tuple(sorted((*others, shared))), coefficient))
        return Coupled(
            tuple((new, _sum(parts)) for new, parts in self.before.items()),
            tuple((new, tuple((1.0, pair) for pair in name)) for name, new in products.items()),
            tuple(sorted(terms)),
            tuple((output, _sum(parts)) for output, parts in sorted(self.after.items())),
        )


def _sum(parts: dict[Factor, float]) -> Sum:
    return tuple((coefficient, (factor,)) for factor, coefficient in sorted(parts.items()))
