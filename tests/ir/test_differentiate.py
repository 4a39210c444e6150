"""Vector-Jacobian products as contractions, against finite differences of the interpreter.

Central differences of polynomials of degree <= 3 with step 1e-5: truncation 1e-10, rounding 1e-10; tolerance 1e-7.
"""

from __future__ import annotations

import numpy as np
import pytest

from flashcart.ir.contraction import Contraction, Index
from flashcart.ir.differentiate import depends_on, vjp
from flashcart.ir.interpret import interpret

from ..programs import REQUESTS, TOYS, numerical_gradient, program_named, random_arrays, random_graph

GRAPH = random_graph([2, 0, 3, 1])
TOLERANCE = 1e-7


def run(program: Contraction, operands: list[np.ndarray]) -> list[np.ndarray]:
    return interpret(program, operands, GRAPH.senders, GRAPH.receivers, GRAPH.n_nodes)


def check_gradients(program: Contraction, operands: list[np.ndarray], seed: int = 5) -> None:
    """Gradients of sum(cotangent * output) with respect to every operand."""
    cotangents = random_arrays(program.outputs, GRAPH, channels=2, seed=seed)
    derivative = vjp(program, tuple(range(len(program.inputs))), tuple(range(len(program.outputs))))
    gradients = run(derivative, [*operands, *cotangents])

    def loss() -> float:
        return float(sum(np.sum(c * out) for c, out in zip(cotangents, run(program, operands), strict=True)))

    for operand, gradient in zip(operands, gradients, strict=True):
        expected = numerical_gradient(loss, operand)
        np.testing.assert_allclose(gradient, expected, atol=TOLERANCE * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("name", [*TOYS, *(name for name in REQUESTS if "rank 2" not in name)])
def test_vjp_equals_finite_differences(name):
    program = program_named(name)
    check_gradients(program, random_arrays(program.inputs, GRAPH, channels=2))


@pytest.mark.parametrize("name", [*TOYS, "edges, row weights", "rows, symmetric, row weights"])
def test_vjp_of_a_vjp_equals_finite_differences(name):
    program = program_named(name)
    derivative = vjp(program, tuple(range(len(program.inputs))), tuple(range(len(program.outputs))))
    check_gradients(derivative, random_arrays(derivative.inputs, GRAPH, channels=2))


def test_third_derivative_of_a_walk_equals_finite_differences():
    program = program_named("edges, row weights")
    second = vjp(vjp(program, (0, 1, 2), (0,)), (0, 1, 2, 3), (0, 1, 2))
    check_gradients(second, random_arrays(second.inputs, GRAPH, channels=2))


def test_gathering_becomes_scattering():
    program = program_named("edges, row weights")
    derivative = vjp(program, (0, 1, 2), (0,))
    assert derivative.outputs[0].index is Index.SENDER
    assert derivative.inputs[3].index is Index.RECEIVER


def test_broadcasting_becomes_summing():
    derivative = vjp(TOYS["shared operand"], (1,), (0,))
    assert derivative.outputs[0].index is Index.SHARED
    x, cotangent = random_arrays((TOYS["shared operand"].inputs[0], TOYS["shared operand"].outputs[0]), GRAPH, 2)
    (gradient,) = run(derivative, [x, np.zeros((1, 2, 2)), cotangent])
    np.testing.assert_allclose(gradient[0, 1], 1.5 * np.sum(x[:, 0] * cotangent[:, 0], axis=0))


def test_a_square_differentiates_to_twice_the_operand():
    (gradient,) = run(vjp(TOYS["squared operand"], (0,), (0,)), _square_operands())
    x, cotangent = _square_operands()
    expected = 4.0 * x[:, 0] * cotangent[:, 0] + 3.0 * x[:, 1] ** 2 * cotangent[:, 1]
    np.testing.assert_allclose(gradient[:, 0], expected)


def _square_operands() -> list[np.ndarray]:
    program = TOYS["squared operand"]
    return random_arrays((program.inputs[0], program.outputs[0]), GRAPH, 2)


def test_only_wanted_gradients_are_made():
    program = program_named("edges, row weights")
    derivative = vjp(program, (2,), (0,))
    assert len(derivative.outputs) == 1
    assert derivative.outputs[0].components == program.inputs[2].components


def test_outputs_without_cotangent_do_not_contribute():
    program = TOYS["scattered outputs"]
    derivative = vjp(program, (0,), (1,))
    assert len(derivative.inputs) == 2
    x, cotangent = random_arrays((program.inputs[0], program.outputs[1]), GRAPH, 2)
    (gradient,) = run(derivative, [x, cotangent])
    np.testing.assert_allclose(gradient[:, 0], 0.0)
    np.testing.assert_allclose(gradient[:, 1], 4.0 * x[:, 1] * cotangent[GRAPH.receivers, 0])


def test_depends_on_sees_which_outputs_need_an_operand():
    program = TOYS["operand without channels"]
    assert depends_on(program, 0, (0,))
    assert depends_on(program, 1, (1,))
    assert not depends_on(TOYS["constant and missing outputs"], 0, (0, 1))
    assert not depends_on(vjp(TOYS["shared operand"], (0,), (0,)), 0, (0,))


def test_derivatives_keep_the_roles_of_the_form():
    """Every term of a multilinear form's derivatives holds each role once: what lets one plan serve all orders."""
    program = program_named("edges, row weights")
    derivative = vjp(vjp(program, (0, 1, 2), (0,)), (0, 1, 2, 3), (0, 1, 2))
    for term in derivative.terms:
        roles = [derivative.inputs[slot].role for slot, _ in term.factors] + [derivative.outputs[term.output[0]].role]
        assert sorted(roles) == [0, 1, 2, 3]
