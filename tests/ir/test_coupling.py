"""Terms rewritten with couplings outside the loop are the same polynomial."""

from collections import defaultdict

import numpy as np
import pytest

from flashcart.algebra.lowering import make
from flashcart.ir.coupling import couple, is_trilinear, path_sizes
from flashcart.ir.differentiate import vjp
from flashcart.ir.requests import ExpansionRequest, ProductRequest, Weights


def orders(weights, sum_paths=False):
    forward = make(ProductRequest(1, 2, 2, True, False, weights, sum_paths))
    everything = tuple(range(len(forward.inputs)))
    backward = vjp(forward, everything, (0,))
    return [forward, backward, vjp(backward, (*everything, len(everything)), everything)]


def evaluate(coupled, program, inputs):
    """Output components of one receiver with one edge: before, products, terms, after."""
    values = dict(inputs)
    for new, parts in (*coupled.before, *coupled.products):
        values[new] = sum(c * np.prod([values[f] for f in factors]) for c, factors in parts)
    outputs = defaultdict(float)
    for term in coupled.terms:
        outputs[term.output] += term.coefficient * np.prod([values[f] for f in term.factors])
    for output, parts in coupled.after:
        outputs[output] += sum(c * outputs[factor] for c, (factor,) in parts)
    return {key: value for key, value in outputs.items() if key[0] < len(program.outputs)}


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("weights", [Weights.ROW, Weights.NONE, Weights.SHARED])
@pytest.mark.parametrize("sum_paths", [False, True])
@pytest.mark.parametrize("share", ["none", "some", "all"])
def test_rewritten_terms_have_the_same_value(order, weights, sum_paths, share):
    program = orders(weights, sum_paths)[order]
    rng = np.random.default_rng(5)
    inputs = {(s, c): rng.normal() for s, operand in enumerate(program.inputs) for c in range(operand.components)}
    wanted = defaultdict(float)
    for term in program.terms:
        wanted[term.output] += term.coefficient * np.prod([inputs[f] for f in term.factors])
    paths = sorted(path_sizes(program, program.terms))
    chosen = frozenset({"none": [], "some": paths[::2], "all": paths}[share])
    got = evaluate(couple(program, program.terms, chosen, chosen), program, inputs)
    assert got.keys() == wanted.keys()
    assert max(abs(got[key] - wanted[key]) for key in wanted) < 1e-12  # sums of tens of numbers of order one


def test_coupled_loops_hold_no_coefficients():
    for program in orders(Weights.ROW)[:2]:
        paths = frozenset(path_sizes(program, program.terms))
        assert {term.coefficient for term in couple(program, program.terms, paths, paths).terms} == {1.0}


def test_weights_and_first_tensors_are_multiplied_once():
    forward = orders(Weights.ROW)[0]
    products = couple(forward, forward.terms, frozenset(), frozenset()).products
    pairs = {tuple(f for f in term.factors if f[0] != 1) for term in forward.terms}
    assert len(products) == len(pairs)


def test_powers_and_expansions_are_left_alone():
    symmetric = make(ProductRequest(1, 1, 1, False, True, Weights.ROW, True, True))
    for program in (symmetric, make(ExpansionRequest(2))):
        assert not is_trilinear(program, program.terms)
