"""Emitted Triton source: small kernels compared byte for byte with tests/golden/triton.

`pytest tests/emit --update-goldens` writes the goldens anew; read their diff before committing it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flashcart.algebra.lowering import make
from flashcart.emit.triton_linear import emit_linear
from flashcart.emit.triton_source import emit
from flashcart.ir.contraction import Contraction
from flashcart.ir.differentiate import vjp
from flashcart.ir.launch_plan import LaunchSettings
from flashcart.ir.requests import ExpansionRequest

from ..programs import EDGE_PRODUCT, ROW_PRODUCT

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "triton"


def golden_programs() -> dict[str, Contraction]:
    walk = make(EDGE_PRODUCT)
    return {
        "expansion_l1": make(ExpansionRequest(1)),
        "walk_1x1_1": walk,
        "walk_1x1_1_vjp": vjp(walk, (0, 1, 2), (0,)),
        "rows_1x1_1": make(ROW_PRODUCT),
    }


def golden_texts() -> dict[str, str]:
    texts = {name: emit(program, LaunchSettings()) for name, program in golden_programs().items()}
    return texts | {"linear_d_1": emit_linear("d", 1), "linear_cd_2": emit_linear("cd", 2)}


@pytest.mark.parametrize("name", golden_texts())
def test_emitted_text_is_the_golden(name, request):
    text, path = golden_texts()[name], GOLDEN / f"{name}.py"
    if request.config.getoption("--update-goldens"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path} differs: run with --update-goldens and read the diff"


def test_goldens_are_those_of_the_tests_and_no_others():
    assert {path.stem for path in GOLDEN.glob("*.py")} == set(golden_texts())


@pytest.mark.parametrize("variant", ["csr", "edge"])
@pytest.mark.parametrize("name", golden_programs())
def test_row_numbers_are_64_bit_before_they_are_multiplied(name, variant):
    """Arrays may have 2^31 elements and more: every row offset is a 64-bit number times a stride."""
    text = emit(golden_programs()[name], LaunchSettings(edges=variant))
    rows = set(re.findall(r"(\w+(?:\.to\(tl\.int64\))?) \* [io]\d+_(?:row|part)", text))
    wide = {"row", "next_row", "sender", "next_sender", "node", "unit", "part.to(tl.int64)"}
    assert rows
    assert rows <= wide
    for line in re.findall(r"^ *(?:row|unit|node) = .*$", text, re.MULTILINE):
        assert "tl.int64" in line or "tl.load(" in line or "unit" in line or "next_row" in line, line


@pytest.mark.parametrize("axes", ["c", "d", "cd"])
def test_row_numbers_of_linear_maps_are_64_bit_before_they_are_multiplied(axes):
    text = emit_linear(axes, 2)
    rows = set(re.findall(r"(\w+(?:\[[^\]]*\])?) \* (?:[xy]\d+|out)_(?:row|share)", text))
    over_channels, over_rows = {"row[:, None]", "element"}, {"row[None, :]", "row[:, None]", "n_shares", "element"}
    assert rows == (over_rows if axes == "cd" else over_channels)
    numbers = re.findall(r"^ *(?:tile|part) = (.*)$", text, re.MULTILINE)
    assert "to(tl.int64)" in numbers[0]  # what rows and elements are computed from


def test_loads_come_before_stores_in_a_walk():
    body = emit(golden_programs()["walk_1x1_1_vjp"], LaunchSettings()).split("for place in range")[1]
    loop = body.split("next_row = after_row")[0]
    assert loop.rindex("tl.load(") < min(loop.index("tl.store("), loop.index("tl.atomic_add("))


def test_emission_is_deterministic():
    program = golden_programs()["walk_1x1_1_vjp"]
    assert emit(program, LaunchSettings()) == emit(program, LaunchSettings())
