"""Emitted torch source: text compared byte for byte with tests/golden, and what every emitted file must have.

`pytest tests/emit --update-goldens` writes the goldens anew; read their diff before committing it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flashcart.algebra.lowering import make
from flashcart.emit.torch_source import emit
from flashcart.ir.contraction import Contraction
from flashcart.ir.cost import multiply_adds
from flashcart.ir.differentiate import vjp
from flashcart.ir.plan import walk_plan
from flashcart.ir.requests import ExpansionRequest

from ..programs import EDGE_PRODUCT, REQUESTS, ROW_PRODUCT, TOYS, program_named

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def golden_programs() -> dict[str, Contraction]:
    walk = make(EDGE_PRODUCT)
    return {
        "expansion_l1": make(ExpansionRequest(1)),
        "walk_1x1_1": walk,
        "walk_1x1_1_vjp": vjp(walk, (0, 1, 2), (0,)),
        "rows_1x1_1": make(ROW_PRODUCT),
        "linear": make(REQUESTS["linear, a rank without paths"]),
    }


@pytest.mark.parametrize("name", golden_programs())
def test_emitted_text_is_the_golden(name, request):
    text, path = emit(golden_programs()[name]), GOLDEN / f"{name}.py"
    if request.config.getoption("--update-goldens"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs: run with --update-goldens and read the diff"


def test_goldens_are_those_of_the_tests_and_no_others():
    assert {path.stem for path in GOLDEN.glob("*.py")} == set(golden_programs())


def derivatives(program: Contraction) -> list[Contraction]:
    """The program, its gradients, and the gradients of these."""
    first = vjp(program, tuple(range(len(program.inputs))), tuple(range(len(program.outputs))))
    second = vjp(first, tuple(range(len(first.inputs))), tuple(range(len(first.outputs))))
    return [program, first, second]


@pytest.mark.parametrize("name", [*TOYS, *REQUESTS])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_emitted_text_compiles_and_names_its_contraction(name, order):
    program = derivatives(program_named(name))[order]
    text = emit(program)
    compile(text, "emitted", "exec")
    assert program.key in text
    assert f"{len(program.terms)} terms" in text
    assert f"{multiply_adds(program)} multiplications" in text


def test_emission_is_deterministic():
    program = program_named("edges, row weights")
    assert emit(program) == emit(program)


@pytest.mark.parametrize("name", ["edges, row weights", "edges, shared weights", "edges, no weights"])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_edge_products_run_as_walks_at_every_order(name, order):
    assert walk_plan(derivatives(program_named(name))[order]) is not None


@pytest.mark.parametrize("name", ["expansion", "rows", "gathered operand", "squared operand"])
def test_other_programs_run_by_monomials(name):
    assert walk_plan(program_named(name)) is None
