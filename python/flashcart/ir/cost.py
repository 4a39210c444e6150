"""Arithmetic and memory traffic of a contraction, from the object that is also executed."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from flashcart.ir.contraction import Contraction, Index, Operand


@dataclass(frozen=True)
class Cost:
    """Floating-point operations and bytes of one evaluation."""

    flops: int
    bytes: int


def multiply_adds(program: Contraction) -> int:
    """Multiplications and additions per row and channel when every term is evaluated on its own.

    In a linear map the coefficients, equal for all terms of a rank, are applied to the sums, which counts as nothing.
    """
    return sum(len(term.factors) + (not program.mixes_channels) for term in program.terms)


def cost(
    program: Contraction, *, n_rows: int, n_nodes: int, n_channels: int, item_size: int, n_out_channels: int = 1
) -> Cost:
    """Cost of evaluating every term on its own and touching every operand once.

    Args:
        program: the contraction.
        n_rows: rows of the iteration space.
        n_nodes: rows of indexed operands.
        n_channels: channels, 1 where the contraction has none.
        item_size: bytes per number.
        n_out_channels: channels of the axis `d`, which linear maps have.
    """
    sizes = {"c": n_channels, "d": n_out_channels}
    axes = {axis for operand in program.inputs + program.outputs for axis in operand.channels}
    flops = multiply_adds(program) * n_rows * prod(sizes[axis] for axis in axes)

    def elements(operand: Operand) -> int:
        rows = {Index.ROW: n_rows, Index.SHARED: 1}.get(operand.index, n_nodes)
        return rows * operand.components * prod(operand.channel_shape(sizes))

    touched = sum(elements(operand) for operand in program.inputs + program.outputs)
    return Cost(flops=flops, bytes=touched * item_size)
