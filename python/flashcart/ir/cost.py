"""Arithmetic and memory traffic of a contraction, from the object that is also executed."""

from __future__ import annotations

from dataclasses import dataclass

from flashcart.ir.contraction import Contraction, Index, Operand


@dataclass(frozen=True)
class Cost:
    """Floating-point operations and bytes of one evaluation."""

    flops: int
    bytes: int


def multiply_adds(program: Contraction) -> int:
    """Multiplications and additions per row and channel when every term is evaluated on its own."""
    return sum(len(term.factors) + 1 for term in program.terms)


def cost(program: Contraction, *, n_rows: int, n_nodes: int, n_channels: int, item_size: int) -> Cost:
    """Cost of evaluating every term on its own and touching every operand once.

    Args:
        program: the contraction.
        n_rows: rows of the iteration space.
        n_nodes: rows of indexed operands.
        n_channels: channels, 1 where the contraction has none.
        item_size: bytes per number.
    """
    flops = multiply_adds(program) * n_rows * n_channels

    def elements(operand: Operand) -> int:
        rows = {Index.ROW: n_rows, Index.SHARED: 1}.get(operand.index, n_nodes)
        return rows * operand.components * (n_channels if operand.channels else 1)

    touched = sum(elements(operand) for operand in program.inputs + program.outputs)
    return Cost(flops=flops, bytes=touched * item_size)
