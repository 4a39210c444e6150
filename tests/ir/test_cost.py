"""Operation and byte counts: whole numbers, so equality."""

from __future__ import annotations

from flashcart.ir.cost import cost, multiply_adds
from flashcart.ir.differentiate import vjp

from ..programs import TOYS, program_named


def test_every_term_costs_its_factors_and_one_addition():
    # 2 x0 x0 -> 3 operations, 3 x0 x1 x1 -> 4
    assert multiply_adds(TOYS["squared operand"]) == 7


def test_operations_scale_with_rows_and_channels():
    program = TOYS["squared operand"]
    assert cost(program, n_rows=5, n_nodes=0, n_channels=4, item_size=8).flops == 7 * 5 * 4


def test_bytes_count_every_operand_once_with_its_own_rows():
    program = program_named("edges, row weights")
    result = cost(program, n_rows=10, n_nodes=3, n_channels=2, item_size=4)
    x, y, w = 3 * 4 * 2, 10 * 4, 10 * program.inputs[2].components * 2
    out = 3 * program.outputs[0].components * 2
    assert result.bytes == 4 * (x + y + w + out)


def test_shared_operands_are_read_once():
    program = TOYS["shared operand"]
    few = cost(program, n_rows=1, n_nodes=0, n_channels=1, item_size=1).bytes
    many = cost(program, n_rows=2, n_nodes=0, n_channels=1, item_size=1).bytes
    assert many - few == 4  # one more row of the input and of the output, not of the shared operand


def test_backward_costs_more_than_forward():
    program = program_named("edges, row weights")
    assert multiply_adds(vjp(program, (0, 1, 2), (0,))) > 2 * multiply_adds(program)
