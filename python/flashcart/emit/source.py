"""What all emitters share: the header of a generated file, indentation, tables of constants."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flashcart.ir.contraction import Contraction
from flashcart.ir.cost import multiply_adds


class Source:
    """Lines of source text with an indentation level."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._level = 0

    def line(self, text: str = "") -> None:
        """Add one line at the current level."""
        self._lines.append("    " * self._level + text if text else "")

    def indent(self) -> None:
        """One level deeper."""
        self._level += 1

    def dedent(self) -> None:
        """One level up."""
        self._level -= 1

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"


def write_header(source: Source, program: Contraction, emitter: str, plan: str) -> None:
    """Docstring of a generated file: what it computes, where it came from, how much arithmetic it stands for."""
    source.line('"""Generated; do not edit.')
    source.line()
    source.line(f"contraction {program.key}, {len(program.terms)} terms,")
    source.line(f"{multiply_adds(program)} multiplications and additions per row and channel, term by term.")
    source.line(f"emitter: {emitter}; plan: {plan}")
    for kind, operands in (("input", program.inputs), ("output", program.outputs)):
        for slot, operand in enumerate(operands):
            channels = ", channels" if operand.channels else ""
            source.line(f"{kind} {slot}: {operand.components} components by {operand.index.value}{channels}")
    source.line('"""')
    source.line()


def write_table(source: Source, matrix: npt.NDArray[np.float64]) -> None:
    """One constant matrix as (rows, columns, ((row, column, value), ...)), an entry per line."""
    source.line(f"({matrix.shape[0]}, {matrix.shape[1]}, (")
    source.indent()
    for row, column in np.argwhere(matrix):
        source.line(f"({row}, {column}, {float(matrix[row, column])!r}),")
    source.dedent()
    source.line(")),")
