"""The contraction object: canonical text, keys, checks."""

from __future__ import annotations

import pytest

from flashcart.ir.contraction import Contraction, Index, Operand, Term, parse
from flashcart.ir.simplify import contraction, merge_terms

from ..programs import REQUESTS, TOYS, program_named

PLAIN = Operand(2, Index.ROW, channels="c", role=0)
OUT = Operand(2, Index.ROW, channels="c", role=1)


@pytest.mark.parametrize("name", [*TOYS, *REQUESTS])
def test_text_round_trip_is_exact(name):
    program = program_named(name)
    again = parse(program.text)
    assert again == program
    assert again.text == program.text
    assert again.key == program.key


def test_text_of_something_else_is_refused():
    with pytest.raises(ValueError, match="not a contraction"):
        parse("flashcart-contraction 99\n")
    with pytest.raises(ValueError, match="not a contraction"):
        parse("")


def test_key_of_a_toy_is_stable():
    """Compiled graphs and caches store keys: whoever changes the text format changes FORMAT and this number."""
    assert TOYS["squared operand"].key == "a06b86b9223d6496f88f5f226718ff02"


def test_every_program_has_a_key_of_its_own():
    names = [*TOYS, *REQUESTS]
    assert len({program_named(name).key for name in names}) == len(names)


@pytest.mark.parametrize(
    "other",
    [
        Operand(3, Index.ROW, channels="c", role=0),
        Operand(2, Index.SENDER, channels="c", role=0),
        Operand(2, Index.ROW, channels="", role=0),
        Operand(2, Index.ROW, channels="c", role=2),
        Operand(2, Index.ROW, channels="c", role=0, ranks=(0, 0)),
    ],
)
def test_every_property_of_an_operand_enters_the_key(other):
    terms = (Term((0, 0), ((0, 1),), 1.0),)
    assert Contraction((PLAIN,), (OUT,), terms).key != Contraction((other,), (OUT,), terms).key


def test_the_last_bit_of_a_coefficient_enters_the_key():
    first = Contraction((PLAIN,), (OUT,), (Term((0, 0), ((0, 1),), 0.1),))
    second = Contraction((PLAIN,), (OUT,), (Term((0, 0), ((0, 1),), 0.1 + 2**-56),))
    assert 0.1 != 0.1 + 2**-56
    assert first.key != second.key


@pytest.mark.parametrize("term", [Term((1, 0), (), 1.0), Term((0, 2), (), 1.0)])
def test_terms_that_write_outside_the_outputs_are_refused(term):
    with pytest.raises(ValueError, match="writes outside"):
        Contraction((PLAIN,), (OUT,), (term,))


@pytest.mark.parametrize("factor", [(1, 0), (0, 2), (0, -1)])
def test_terms_that_read_outside_the_inputs_are_refused(factor):
    with pytest.raises(ValueError, match="reads outside"):
        Contraction((PLAIN,), (OUT,), (Term((0, 0), (factor,), 1.0),))


def test_contractions_are_hashable_and_immutable():
    program = TOYS["shared operand"]
    assert program in {parse(program.text)}
    with pytest.raises(AttributeError):
        program.terms = ()


def test_printing_shows_the_text():
    assert str(TOYS["shared operand"]) == TOYS["shared operand"].text


def test_merging_adds_terms_whose_factors_differ_in_order_only():
    merged = merge_terms([Term((0, 0), ((1, 0), (0, 0)), 1.0), Term((0, 0), ((0, 0), (1, 0)), 2.0)])
    assert merged == (Term((0, 0), ((0, 0), (1, 0)), 3.0),)


def test_merging_drops_terms_that_cancel():
    third = 1.0 / 3.0
    assert merge_terms([Term((0, 0), ((0, 0),), third), Term((0, 0), ((0, 0),), -third)]) == ()


def test_merging_keeps_powers_apart():
    merged = merge_terms([Term((0, 0), ((0, 0),), 1.0), Term((0, 0), ((0, 0), (0, 0)), 1.0)])
    assert len(merged) == 2


def test_the_order_of_terms_does_not_matter():
    terms = TOYS["squared operand"].terms
    inputs, outputs = TOYS["squared operand"].inputs, TOYS["squared operand"].outputs
    assert contraction(inputs, outputs, terms[::-1]) == TOYS["squared operand"]
