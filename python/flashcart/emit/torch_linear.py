"""Linear maps over channels as PyTorch source: one matrix product per rank, batched where every rank has one path.

Names in the generated text: `x{slot}` operands [components, n, channels] of the rows of one element, `w{slot}` its
matrices [paths, c, d] with the coefficients of their ranks. The products are methods of flashcart.ops.linear_rows.
"""

from __future__ import annotations

from flashcart.emit.source import Source
from flashcart.ir.contraction import Contraction
from flashcart.ir.linear_plan import LinearBlock, LinearPlan, LinearVariant


def write_linear(source: Source, program: Contraction, plan: LinearPlan) -> None:
    """Write `TABLES`, `INDICES` and `run`."""
    one_path = len(plan.blocks) > 1 and all(block.paths == 1 for block in plan.blocks)
    matrices = tuple(block.matrix for block in plan.blocks for _ in range(block.size))
    scales = tuple(block.coefficient for block in plan.blocks for _ in range(block.paths))
    source.line("TABLES = ()")
    source.line(f"INDICES = ({scales}, {matrices})")
    source.line()
    source.line()
    source.line("def run(operands, rows, tables, indices):")
    source.indent()
    for slot, operand in enumerate(program.outputs):
        whole = _covers(plan, operand.channels, operand.components)
        arguments = f"{operand.components}, {operand.index.value!r}, {operand.channels!r}"
        source.line(f"out{slot} = rows.{'room' if whole else 'zero_room'}({arguments})")
    source.line("for part in rows.elements():")
    source.indent()
    for axes, (kind, slot) in sorted({place for variant in plan.variants for place in _places(variant)}):
        if kind == "in" and axes == "cd":
            scaled = "" if all(scale == 1 for scale in scales) else " * indices[0].view(-1, 1, 1)"
            source.line(f"w{slot} = operands[{slot}][:, part.element]{scaled}")
        elif kind == "in":
            source.line(f"x{slot} = part.take(operands[{slot}])")
    for slot in range(len(program.outputs)):
        for number, variant in enumerate(plan.of_output(slot)):
            if one_path and variant.output[0] != "cd":
                _write_batched(source, variant, first=number == 0)
                continue
            for block in plan.blocks:
                _write_product(source, variant, block, first=number == 0)
    source.dedent()
    source.line("return [" + ", ".join(f"out{slot}" for slot in range(len(program.outputs))) + "]")
    source.dedent()


def _places(variant: LinearVariant) -> list[tuple[str, tuple[str, int]]]:
    return [("c", variant.c), ("d", variant.d), ("cd", variant.matrix)]


def _covers(plan: LinearPlan, axes: str, components: int) -> bool:
    """Whether the blocks write every component of an output."""
    return bool(plan.blocks) and components == sum(
        {"c": block.paths * block.size, "d": block.size, "cd": block.paths}[axes] for block in plan.blocks
    )


def _write_batched(source: Source, variant: LinearVariant, *, first: bool) -> None:
    matrices = f"w{variant.matrix[1]}.index_select(0, indices[1])"
    if variant.output[0] == "d":
        text = f"out{variant.d[1]}, x{variant.c[1]}, {matrices}"
    else:
        text = f"out{variant.c[1]}, x{variant.d[1]}, {matrices}.transpose(1, 2)"
    source.line(f"part.batched({text}, {first})")


def _write_product(source: Source, variant: LinearVariant, block: LinearBlock, *, first: bool) -> None:
    c = f"[{block.c}:{block.c + block.paths * block.size}]"
    d = f"[{block.d}:{block.d + block.size}]"
    matrix = f"[{block.matrix}:{block.matrix + block.paths}]"
    axes, slot = variant.output
    if axes == "d":
        source.line(f"part.map(out{slot}{d}, x{variant.c[1]}{c}, w{variant.matrix[1]}{matrix}, {first})")
    elif axes == "c":
        source.line(f"part.map_back(out{slot}{c}, x{variant.d[1]}{d}, w{variant.matrix[1]}{matrix}, {first})")
    else:
        source.line(
            f"part.outer(out{slot}{matrix}, x{variant.c[1]}{c}, x{variant.d[1]}{d}, {block.coefficient!r}, {first})"
        )
