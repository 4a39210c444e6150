"""How a program is cut into launches: groups of whole output ranks under a budget, input ranks, outputs.

Takes a contraction and `LaunchSettings`, returns `Launch`es whose terms together are those of the contraction. Where
the numbers come from (environment variables) and how a launch becomes a kernel is no concern of this module.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum

from flashcart.ir.contraction import Contraction, Index, Operand, Term


class Order(str, Enum):
    """Which derivative a program is."""

    FORWARD = "forward"
    BACKWARD = "backward"
    SECOND = "second"  # double backward and beyond


@dataclass(frozen=True)
class LaunchSettings:
    """The choices that decide the launches; defaults as documented for the environment variables.

    Attributes:
        edges: `csr` (edges grouped by receiver) or `edge` (edges apart, atomic additions).
        forward_budget, backward_budget, second_budget: components of the original output that a launch may hold.
        backward_split, second_split: `fused` or `full`; None leaves it to rank and variant.
        peak_aware: budgets grow to the largest rank's number of components.
        split_input_rank: within a group over edges, one launch per rank of the first operand.
        deterministic: no atomic additions.
        block: channels of one program; None leaves it to `flashcart.ir.block_choice`.
        coupled: couplings may leave the loop over edges (`flashcart.ir.coupling`).
    """

    edges: str = "csr"
    forward_budget: int = 100
    backward_budget: int = 100
    second_budget: int = 50
    backward_split: str | None = None
    second_split: str | None = None
    peak_aware: bool = True
    split_input_rank: bool = True
    deterministic: bool = False
    block: int | None = None
    coupled: bool = True


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        terms: what it adds up.
        ranks: ranks of the original output that it holds.
        input_rank: rank of the first operand, or None where all of them are in the launch.
        n_components: components of the original output that it holds.
    """

    terms: tuple[Term, ...]
    ranks: tuple[int, ...]
    input_rank: int | None
    n_components: int

    @property
    def outputs(self) -> tuple[int, ...]:
        """Output slots that the launch writes."""
        return tuple(sorted({term.output[0] for term in self.terms}))


def order_of(program: Contraction) -> Order:
    """Whether a program is a forward, a first or a higher derivative, read off the roles of its operands."""
    pivot = program.pivot_role
    if all(operand.role == pivot for operand in program.outputs):
        return Order.FORWARD if all(operand.role != pivot for operand in program.inputs) else Order.SECOND
    roles = [operand.role for operand in program.inputs]
    simple = roles.count(pivot) == 1 and len(roles) == len(set(roles))
    return Order.BACKWARD if simple and all(o.role != pivot for o in program.outputs) else Order.SECOND


def plan_launches(program: Contraction, settings: LaunchSettings) -> tuple[Launch, ...]:
    """The launches of a program, in the order in which they run."""
    order = order_of(program)
    split = split_of(program, settings) == "full"
    pivot_ranks = [_rank(program, term, program.pivot_role) for term in program.terms]
    launches = []
    for ranks in _pack(program, _budget(order, split, settings), settings.peak_aware):
        inside = [term for term, rank in zip(program.terms, pivot_ranks, strict=True) if rank in ranks]
        parts: dict[tuple[int, int], list[Term]] = defaultdict(list)
        by_input = settings.split_input_rank and is_indexed(program)
        for term in inside:
            input_rank = _rank(program, term, 0) if by_input else -1
            parts[input_rank, term.output[0] if split else -1].append(term)
        for (input_rank, _), terms in sorted(parts.items()):
            held = {_component(program, term, program.pivot_role) for term in terms}
            launches.append(Launch(tuple(terms), ranks, input_rank if by_input else None, len(held)))
    return tuple(launches)


def split_of(program: Contraction, settings: LaunchSettings) -> str:
    """`fused` or `full`: as set, else full where the kernels would be large (rank above 3, or rank 3 by edges)."""
    order = order_of(program)
    if order is Order.FORWARD:
        return "fused"
    chosen = settings.backward_split if order is Order.BACKWARD else settings.second_split
    if chosen is not None:
        return chosen
    highest = highest_rank(program)
    return "full" if highest > 3 or (order is Order.SECOND and settings.edges == "edge" and highest == 3) else "fused"


def highest_rank(program: Contraction) -> int:
    """The highest rank of any operand."""
    return max((rank for o in program.inputs + program.outputs for rank in o.ranks), default=0)


def is_indexed(program: Contraction) -> bool:
    """Whether rows are edges."""
    return any(o.index in (Index.SENDER, Index.RECEIVER) for o in program.inputs + program.outputs)


def _budget(order: Order, split: bool, settings: LaunchSettings) -> int:
    if order is Order.FORWARD:
        return settings.forward_budget
    if order is Order.BACKWARD:
        return settings.backward_budget
    return settings.backward_budget if split else settings.second_budget


def _pack(program: Contraction, budget: int, peak_aware: bool) -> list[tuple[int, ...]]:
    """Whole ranks of the original output, greedily up to the budget."""
    operand = _of_role(program, program.pivot_role)
    sizes: dict[int, int] = defaultdict(int)
    for rank in operand.ranks or (0,):
        sizes[rank] += 2 * rank + 1
    limit = max(budget, *sizes.values()) if peak_aware else budget
    groups: list[list[int]] = []
    filled = 0
    for rank, size in sorted(sizes.items()):
        if groups and filled + size <= limit:
            groups[-1].append(rank)
            filled += size
        else:
            groups.append([rank])
            filled = size
    return [tuple(group) for group in groups]


def _of_role(program: Contraction, role: int) -> Operand:
    return next(o for o in program.inputs + program.outputs if o.role == role)


def _component(program: Contraction, term: Term, role: int) -> int:
    """Component of the term's operand with a role; of several the first; 0 where there is none."""
    slot, component = term.output
    if program.outputs[slot].role == role:
        return component
    return next((c for s, c in term.factors if program.inputs[s].role == role), 0)


def _rank(program: Contraction, term: Term, role: int) -> int:
    return _of_role(program, role).rank_of(_component(program, term, role))
