"""Linear maps and their derivatives as matrix products: the plan gives back every term."""

from __future__ import annotations

import pytest

from flashcart.ir.contraction import Contraction, Index, Operand, Term
from flashcart.ir.differentiate import vjp
from flashcart.ir.linear_plan import linear_plan
from flashcart.ir.simplify import merge_terms

from ..programs import REQUESTS, program_named

LINEAR = [name for name in REQUESTS if name.startswith("linear")]


def terms_of(program: Contraction) -> tuple[Term, ...]:
    """The terms that a plan stands for."""
    plan, terms = linear_plan(program), []
    for variant in plan.variants:
        for block in plan.blocks:
            for j in range(block.paths):
                for m in range(block.size):
                    places = [
                        (variant.c, block.c + j * block.size + m),
                        (variant.d, block.d + m),
                        (variant.matrix, block.matrix + j),
                    ]
                    (output,) = [(slot, component) for (kind, slot), component in places if kind == "out"]
                    factors = tuple((slot, component) for (kind, slot), component in places if kind == "in")
                    terms.append(Term(output, factors, block.coefficient))
    return merge_terms(terms)


@pytest.mark.parametrize("name", LINEAR)
def test_plans_of_all_orders_hold_every_term_once(name):
    program = program_named(name)
    first = vjp(program, (0, 1), (0,))
    for derivative in (program, first, vjp(first, (0, 1, 2), (0, 1)), vjp(first, (2,), (0,))):
        assert terms_of(derivative) == derivative.terms


def test_ranks_are_blocks():
    blocks = linear_plan(program_named("linear")).blocks
    assert [(block.paths, block.size) for block in blocks] == [(2, 1), (1, 3), (3, 5)]
    assert [block.coefficient for block in blocks] == [2**-0.5, 1.0, 3**-0.5]


def test_what_is_no_linear_map_is_refused():
    x, w = Operand(2, Index.ROW, "c", 0), Operand(1, Index.SHARED, "cd", 1)
    out = Operand(2, Index.ROW, "d", 2)
    swapped = (Term((0, 0), ((0, 1), (1, 0)), 1.0), Term((0, 1), ((0, 0), (1, 0)), 1.0))
    with pytest.raises(ValueError, match="do not follow each other"):
        linear_plan(Contraction((x, w), (out,), swapped))
    with pytest.raises(ValueError, match="a term needs"):
        linear_plan(Contraction((x, w), (out,), (Term((0, 0), ((0, 0), (0, 1)), 1.0),)))
